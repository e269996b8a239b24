"""Users' files for the command line: pairs and single columns from arrays, tables and vectors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pointdep.data import files, raw_files, shards
from pointdep.data.files import FORMATS, ArrayFormat, KeyedFormat, TableFormat, is_table
from pointdep.data.raw import ASKED, Array, require_same_length
from pointdep.data.raw_files import TEXTS, RawFile
from pointdep.errors import InputError, all_at_once, listed

_OfBoth = tuple[Any, Any]


def read_pairs(
    paths: Sequence[Path],
    *,
    x_columns: str | None,
    y_columns: str | None,
    encoders: _OfBoth = (None, None),
) -> tuple[object, object]:
    """X and Y, as things as_side accepts, from one file with both or from two files.

    x_columns, y_columns: comma-separated columns of a table, or the key of an array in a .npz or
    .safetensors file, where "x" and "y" are meant otherwise. encoders: the names of those of texts,
    pictures and sounds.
    """
    paths = [Path(path) for path in paths]
    if len(paths) == 1:
        return _both_sides(paths[0], x_columns, y_columns, encoders)
    if len(paths) != 2:
        raise InputError(f"give one file with both sides or two files, not {len(paths)} files")
    for path in paths:
        if path.suffix.lower() not in (*TEXTS, ".tar"):
            _kind(path)
        if not path.exists():
            raise InputError(f"{path} does not exist")
    if (found := _folder_and_table(paths, (x_columns, y_columns), encoders)) is not None:
        return found
    if all(path.suffix.lower() == ".vec" for path in paths) and x_columns is y_columns is None:
        return files.read_vec_pair(*paths)[1:]
    promised = _promised(paths[0], x_columns, "x"), _promised(paths[1], y_columns, "y")
    if all(promised) and promised[0] != promised[1] and all(path.is_dir() for path in paths):
        shards.require_equal_rows(*((path, _shard_sizes(path)) for path in paths))
    _require_same_rows(*promised)
    x = read_side(paths[0], columns=x_columns, key="x", name="x", encoder=encoders[0])
    y = read_side(paths[1], columns=y_columns, key="y", name="y", encoder=encoders[1])
    shards.require_partners(x, y)
    return x, y


def _promised(path: Path, columns: str | None, name: str) -> int | None:
    """The rows that a file promises without being read; None if it does not tell."""
    if path.suffix.lower() in (*TEXTS, ".tar") or (path.is_dir() and not _is_shards(path)):
        return None
    kind = _kind(path)
    if isinstance(kind, KeyedFormat):
        shapes = kind.shapes(path)
        shape = shapes[_key(path, list(shapes), columns, name)]
        return shape[0] if shape else None
    if isinstance(kind, ArrayFormat):
        shape = np.shape(kind.load(path)) if path.suffix.lower() == ".npy" else ()
        return shape[0] if shape else None
    if kind is not None and path.suffix.lower() not in shards.SHARDS:
        return None
    return sum(rows for _, rows in _shard_sizes(path))


def _shard_sizes(path: Path) -> list[tuple[Path, int]]:
    files = shards.shard_files(path)
    return [(file, shards.SHARDS[file.suffix.lower()](file).rows) for file in files]


def _is_shards(path: Path) -> bool:
    return any(file.suffix.lower() in shards.SHARDS for file in path.iterdir())


def _folder_and_table(
    paths: Sequence[Path], columns: _OfBoth, encoders: _OfBoth
) -> tuple[object, object] | None:
    """A folder of pictures or sounds, and a table that names them and holds the other side."""
    at = [n for n, path in enumerate(paths) if path.is_dir() and not _is_shards(path)]
    if len(at) != 1 or not is_table(paths[1 - at[0]]):
        return None
    folder, path = paths[at[0]], paths[1 - at[0]]
    found, frame = raw_files.open_raw(folder), files.read_table(path, None)
    told = raw_files.beside_folder(frame, at[0] == 0, columns)
    if found is None or told is None:
        return None
    own, other = told
    named = found.frame if own is None else frame[[own]]
    if own is None and len(named) != len(frame):
        count = f"{len(named)} files and {path} has {len(frame)} rows"
        raise InputError(f"{folder} has {count}: name the column of files by --x-columns")
    of_files, of_table = "xy"[at[0]], "xy"[1 - at[0]]
    folders = (folder, path.parent, folder.parent)
    sides = [
        raw_files.sided(named, folders, encoders[at[0]], of_files),
        raw_files.sided(frame[[other]], folders, encoders[1 - at[0]], of_table),
    ]
    return sides[at[0]], sides[1 - at[0]]


def _require_same_rows(x: int | None, y: int | None) -> None:
    if x and y:  # a file without rows is refused by its reader
        require_same_length(range(x), range(y))


def remembered(paths: Sequence[Path], given: _OfBoth, known: _OfBoth) -> _OfBoth:
    """x_columns and y_columns for `read_pairs`: where not given, the known column of lists.

    It is taken where the file has it, and leaves files that hold other columns as they were.
    """
    paths = [Path(path) for path in paths]
    if len(paths) == 1 and known[0] == known[1]:
        return given
    x, y = (
        own if own is not None else _if_there(path, column)
        for path, own, column in zip((paths[0], paths[-1]), given, known, strict=True)
    )
    return x, y


def columns_of_fit(paths: Sequence[Path], given: _OfBoth, encoders: Sequence[Any]) -> _OfBoth:
    """x_columns and y_columns for `read_pairs`: where not given, those of the fit.

    encoders: of both sides. Files without named columns are left as they were.
    """
    paths = [Path(path) for path in paths]
    lists = encoders[0].list_column, encoders[1].list_column
    found: list[Any] = list(remembered(paths, given, lists))
    problems = []
    for side, (path, encoder) in enumerate(zip((paths[0], paths[-1]), encoders, strict=True)):
        if found[side] is None and encoder.knows_names and path.exists() and is_table(path):
            found[side] = names = list(encoder.given_names)
            there = files.table_columns(path)
            if lacking := [name for name in names if name not in there]:
                which = ", ".join(map(repr, lacking[:5])) + (", ..." if len(lacking) > 5 else "")
                fitted = (
                    f"the model was fitted on {', '.join(names[:20])} of {encoder.side.lower()}"
                )
                problems.append(InputError(f"{path} has no column {which}: {fitted}"))
    if problems:
        raise all_at_once(problems)
    return found[0], found[1]


def _if_there(path: Path, column: str | None) -> str | None:
    if column is None or column != column.strip() or "," in column:  # as no option could say it
        return None
    if _kind(path) is not None and path.suffix.lower() not in shards.TABLE_SHARDS:
        return None
    return column if column in _stored_names(path) else None


def read_column(path: Path, column: str | None) -> Array:
    """(rows,) one column of a file, such as the groups of the rows; column may be left out when the
    file holds only one."""
    path = Path(path)
    values: Any
    if column is not None and (found := raw_files.open_raw(path)) is not None:
        return np.asarray(raw_files.one_column(found, path, [column], "single").iloc[:, 0])
    if isinstance(_kind(path), TableFormat | None):
        table = _whole_table(path, None if column is None else [column])
        if table.shape[1] != 1:
            names = listed(table.columns)
            raise InputError(f"{path} has {table.shape[1]} columns: name one of {names}")
        values = table.iloc[:, 0]
        if str(values.dtype) in ("category", "str", "string"):
            values = values.astype(object)
        return np.asarray(values)
    if path.suffix.lower() == ".vec":
        raise InputError(f"{path} holds word vectors: a single column cannot come from a .vec file")
    values = np.asarray(read_side(path, columns=column, key=None, name="single"))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(f"{path} holds an array of shape {values.shape}: one column is needed")
    return np.asarray(values)


def _kind(path: Path) -> ArrayFormat | KeyedFormat | TableFormat | None:
    """How a file is read, by its suffix; None for Arrow files and folders of shards."""
    suffix = path.suffix.lower()
    if path.is_dir() or (suffix in shards.TABLE_SHARDS and suffix not in FORMATS):
        return None
    if suffix not in FORMATS:
        if not suffix and not path.exists():
            raise InputError(f"{path} does not exist")
        known = listed(dict.fromkeys((*sorted(FORMATS), *shards.TABLE_SHARDS)))
        raise InputError(f"{path} has the unknown suffix {path.suffix!r}: known are {known}")
    return FORMATS[suffix]


def _both_sides(
    path: Path, x_columns: str | None, y_columns: str | None, encoders: _OfBoth
) -> tuple[object, object]:
    raw = raw_files.open_raw(path) if path.exists() else None
    kind = None if raw is not None else _kind(path)
    if isinstance(kind, ArrayFormat):
        raise InputError(f"{path} holds one side only: give two files, for X and then for Y")
    if isinstance(kind, KeyedFormat):
        shapes, keys = kind.shapes(path), (x_columns or "x", y_columns or "y")
        if all(shapes.get(key) for key in keys):
            _require_same_rows(*(shapes[key][0] for key in keys))
        arrays = kind.load(path, keys)
        return arrays[keys[0]], arrays[keys[1]]
    whole = None if raw is None else raw.frame
    may_guess = whole is not None or (path.is_file() and not _is_all_numbers(path))
    if x_columns is None and y_columns is None and may_guess:
        whole = _whole_table(path, None) if whole is None else whole
        x_columns, y_columns = raw_files.guess_columns(whole, path)
    if x_columns is None or y_columns is None:
        known = _names_of(path) if whole is None else whole.columns
        columns = f"--x-columns and --y-columns, from its columns {listed(known)}"
        raise InputError(f"{path} is a table: give {columns}")
    x_names = split_columns(x_columns, "--x-columns")
    y_names = split_columns(y_columns, "--y-columns")
    if shared := [name for name in x_names if name in y_names]:
        raise InputError(f"column {shared[0]!r} is on both sides: x and y would trivially agree")
    if kind is not None and not _has_embedding(path, [*x_names, *y_names]):
        whole = files.read_table(path, [*x_names, *y_names])
    sides = []
    for side, names, encoder in zip("xy", (x_names, y_names), encoders, strict=True):
        if whole is None:
            sides.append(_table_side(path, names, side, encoder))
            continue
        own = raw_files.one_column(RawFile(whole, ()), path, names, side)
        own.attrs[ASKED] = True  # ids too, as they are named
        folders = (path.parent,) if raw is None else raw.folders
        sides.append(raw_files.sided(own, folders, encoder, side))
    return sides[0], sides[1]


def _is_all_numbers(path: Path) -> bool:
    """Whether a file that tells the types of its columns has nothing but numbers."""
    if path.suffix.lower() not in shards.TABLE_SHARDS:
        return False
    schema = shards.first_schema(path)
    return shards.has_lists(schema, None) or bool(shards.is_numeric(schema, None))


def _names_of(path: Path) -> list[str]:
    return files.table_columns(path) if is_table(path) else _stored_names(path)


def read_side(
    path: Path, *, columns: str | None, key: str | None, name: str, encoder: str | None = None
) -> object:
    """One side, as something as_side accepts; name: of the option --NAME-columns, for errors.

    columns: as in read_pairs; key: the array to prefer in a file that holds several.
    """
    raw = raw_files.open_raw(path) if path.exists() else None
    kind = None if raw is not None else _kind(path)
    if isinstance(kind, TableFormat | None):
        names = None if columns is None else split_columns(columns, f"--{name}-columns")
        if raw is not None:
            own = raw_files.one_column(raw, path, names, name)
            return raw_files.sided(own, raw.folders, encoder, name)
        return _table_side(path, names, name, encoder)
    if isinstance(kind, KeyedFormat):
        chosen = columns if columns is not None else _key(path, list(kind.shapes(path)), None, key)
        return kind.load(path, [chosen])[chosen]
    if columns is not None:
        raise InputError(f"{path} has no named columns: leave out the column {columns!r}")
    return kind.load(path)


def _key(path: Path, known: Sequence[str], given: str | None, preferred: str | None) -> str:
    """Which array of a file that holds several is meant."""
    if not known:
        raise InputError(f"{path} is empty: it holds no arrays")
    if given is not None and given not in known:
        raise InputError(f"{path} holds no array {given!r}: it holds {listed(sorted(known))}")
    if given is not None or len(known) == 1:
        return given or known[0]
    if preferred in known:
        return str(preferred)
    wanted = "" if preferred is None else f" and none called {preferred!r}"
    raise InputError(f"{path} holds many arrays{wanted}: name one of {listed(known)}")


def _table_side(
    path: Path, names: list[str] | None, side: str, encoder: str | None = None
) -> object:
    """Columns of a table: a source of rows for embeddings and shards of numbers, else in memory."""
    if not is_table(path) or _has_embedding(path, names):
        schema = shards.first_schema(path)
        if schema is None or shards.is_numeric(schema, names):
            return shards.open_rows(path, names, option=f"--{side}-columns")
    return raw_files.sided(_whole_table(path, names), (path.parent,), encoder, side)


def _has_embedding(path: Path, names: list[str] | None) -> bool:
    return path.suffix.lower() == ".parquet" and shards.has_lists(shards.first_schema(path), names)


def _stored_names(path: Path) -> list[str]:
    """The columns of shards; none for .npy."""
    schema = shards.first_schema(path)
    return [] if schema is None else [str(name) for name in schema.names]


def _whole_table(path: Path, names: list[str] | None) -> Any:
    """The named columns, or all, in memory."""
    return files.read_table(path, names) if is_table(path) else shards.read_tables(path, names)


def read_table_file(path: Path) -> Any:
    """All columns of a table, in memory, as a pandas DataFrame."""
    path = Path(path)
    if not isinstance(_kind(path), TableFormat | None):
        raise InputError(f"{path} is no table with named columns: give a .csv or .parquet file")
    if not path.exists():
        raise InputError(f"{path} does not exist")
    return _whole_table(path, None)


def split_columns(columns: str | list[str], option: str) -> list[str]:
    """ "a, b" -> ["a", "b"], and lists as they are; option: where it was given, for errors."""
    if not isinstance(columns, str):
        return columns
    names = [name.strip() for name in columns.split(",")]
    if not all(names):
        raise InputError(f"{option} {columns!r} has an empty name: give name,name,...")
    if len(set(names)) < len(names):
        raise InputError(f"{option} {columns!r} names a column twice")
    return names
