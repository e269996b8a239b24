"""Tables of methods and critics: the built-in entries, and those that users register."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from pointdep.errors import InputError, ModelFileError, unknown_name

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Entries by name, or by an import path such as "package.module:NAME".

    An entry is made when it is first looked up, so that help texts can list the names without
    importing torch.

    what: the word for an entry in messages. entries: name -> what `make(name, entry)` turns into
    the entry; `make` raises TypeError where it cannot.
    """

    def __init__(self, what: str, entries: Mapping[str, Any], make: Callable[..., T]) -> None:
        self.what = what
        self._built_in = frozenset(entries)
        self._entries, self._make = dict(entries), make
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._made:
            if name not in self._entries and not is_path(name):
                raise KeyError(name)
            known = name in self._entries
            self._add(name, self._entries[name] if known else import_path(self.what, name))
        return self._made[name]

    def _add(self, name: str, entry: Any) -> None:
        try:
            self._made[name] = self._make(name, entry)
        except TypeError as error:
            raise InputError(f"{self.what} {name!r}: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: object) -> T:
        """The entry of this name or import path; a misspelt name is told the nearest right one."""
        if not isinstance(name, str) or not (name in self._entries or is_path(name)):
            raise unknown_name(self.what, name, self)
        return self[name]

    def register(self, name: str, entry: Any) -> None:
        """Add an entry; one of the same name that was registered before is replaced."""
        if not isinstance(name, str) or not name.isidentifier():
            raise InputError(f"{self.what} name {name!r} must be a Python identifier")
        if name in self._built_in:
            raise InputError(f"{self.what} {name!r} is built in: choose another name")
        self._add(name, entry)
        self._entries[name] = entry

    def require_here(self, name: str, where: object, otherwise: str = "") -> None:
        """Refuse a name in a model's folder that this process does not know.

        A file must not decide which code is imported, so an import path counts only where its
        module has been imported already. otherwise: what else the user may do, in words.
        """
        module = name.partition(":")[0]
        if name in self._entries or (is_path(name) and module in sys.modules):
            return
        if is_path(name):
            todo = f"import {module} first (or: pointdep --import {module} COMMAND)"
        else:
            todo = f"call pointdep.register_{self.what} first, as before the fit"
        fault = f"{where} was fitted with the {self.what} {name!r}, which is not known here"
        raise ModelFileError(f"{fault}: {todo}{otherwise}")


def is_path(name: object) -> bool:
    """Whether this is written as an import path, "package.module:NAME"."""
    return isinstance(name, str) and ":" in name


def import_path(what: str, path: str) -> Any:
    """The object at "package.module:NAME"."""
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{what} {path!r} cannot be imported: {error}") from None
    return found
