"""Critics: networks that score pairs, with a leading replica dimension on every weight.

Each critic declares in its own file what it can do; `CRITICS` is the table of their names. Torch is
imported with the first critic that is looked up, so that help texts can list the names without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pointdep.core.registry import Registry, import_path, is_path

if TYPE_CHECKING:
    from pointdep.core.critics.base import Critic

_HOMES = ("base", "build", "concat", "inner")


def __getattr__(name: str) -> Any:
    """The classes and functions of the modules here, imported when they are asked for."""
    for home in _HOMES if not name.startswith("_") else ():
        module = importlib.import_module(f"{__name__}.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _make(name: str, entry: Any) -> type[Critic]:
    """The class of an entry, which is a class or the import path of one."""
    del name
    from pointdep.core.critics.base import Critic

    found = import_path("critic", entry) if is_path(entry) else entry
    if not (isinstance(found, type) and issubclass(found, Critic)):
        raise TypeError(f"must be a subclass of pointdep.Critic, got {found!r}")
    return found


CRITICS: Registry[type[Critic]] = Registry(
    "critic",
    {
        "auto": "pointdep.core.critics.auto:ResidualCritic",
        "concat": "pointdep.core.critics.concat:ConcatCritic",
        "separable": "pointdep.core.critics.inner:SeparableCritic",
        "bilinear": "pointdep.core.critics.inner:BilinearCritic",
        "inner": "pointdep.core.critics.inner:InnerProductCritic",
    },
    _make,
)
"""The critics that `PointwiseDependency(critic=...)` takes by name."""


def register_critic(name: str, critic: type[Critic]) -> type[Critic]:
    """Add a critic of yours, which can then be chosen by its name wherever a built-in one can.

    A saved model names its critic: register it again before loading the model elsewhere.

    Parameters
    ----------
    name : str
        Identifier that no built-in critic has.
    critic : subclass of Critic
        Made as ``critic(replicas, x_dim, y_dim)``, with those of ``hidden``, ``embedding_dim`` and
        ``activation`` that its ``__init__`` names.

    Returns
    -------
    type
        The class.

    Examples
    --------
    >>> from pointdep import register_critic
    >>> from pointdep.core.critics import BilinearCritic
    >>> class Doubled(BilinearCritic):
    ...     def embed_y(self, y):
    ...         return 2.0 * y
    >>> register_critic("doubled", Doubled).__name__
    'Doubled'
    """
    CRITICS.register(name, critic)
    return CRITICS[name]
