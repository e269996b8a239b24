"""What is damaged and how it is read: a target per format, and one per thing that is loaded."""

import gzip
import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pyarrow import feather
from safetensors.torch import save_file

from fuzz.mutator import edit_json, mutate
from pointdep import PointwiseDependency, from_embeddings
from pointdep.data.files import array_names, is_table, table_columns
from pointdep.data.images.datasets import read_idx
from pointdep.data.readers import read_column, read_pairs
from pointdep.data.shards import SHARDS, first_schema, open_rows
from pointdep.data.sides import SideEncoder, as_side
from pointdep.fitting import state

ROWS = 40


@dataclass(frozen=True)
class Target:
    """make: writes sound inputs into a folder. damage: puts a damaged one into a folder, and says
    whether its answer must be that of the sound one. read: opens it; what it answers is compared
    with what the sound inputs answer."""

    make: Callable[[Path], None]
    damage: Callable[[Path, Path, Random], bool]
    read: Callable[[Path, int], object]


# Files of rows. Other rows than those written are no fault here: nothing in such a file tells.


def _columns():
    random = np.random.default_rng(0)
    text = np.array(["a dog", "ein Hund, klein", 'a "cat"', "犬"])[np.arange(ROWS) % 4]
    numbers = random.normal(size=(ROWS, 2)).astype(np.float32)
    return {
        "id": np.arange(ROWS),
        "a": numbers[:, 0],
        "b": numbers[:, 1].astype(float),
        "text": text,
        "label": text.astype("<U5"),
        "ok": np.arange(ROWS) % 3 == 0,
    }


def _table(kind=0):
    made = pa.table({name: pa.array(values) for name, values in _columns().items()})
    if kind == 1:
        rows = pa.array(np.arange(3.0 * ROWS, dtype=np.float32))
        made = pa.table({"e": pa.FixedSizeListArray.from_arrays(rows, 3), "id": made["id"]})
    if kind == 2:
        days = pd.date_range("2020-01-01", periods=ROWS)
        lists = pa.array([[1.0, float(k)] for k in range(ROWS)])
        made = made.append_column("day", pa.array(days)).append_column("l", lists)
        made = made.append_column("c", made["label"].combine_chunks().dictionary_encode())
    return made


def _arrays(folder, write):
    """Sound files, one per kind of array: write(path, values)."""
    table = _columns()
    numbers = np.column_stack([table["a"], table["b"]])
    kinds = numbers, numbers.astype("f2"), np.asfortranarray(numbers), numbers.astype(">f8")
    kinds += table["id"], table["label"], table["ok"], np.char.encode(table["label"], "utf-8")
    for number, values in enumerate(kinds):
        write(folder / f"{number}", values)


def _npy(folder):
    _arrays(folder, np.save)


def _npz(folder):
    table = _columns()
    numbers = np.column_stack([table["a"], table["b"]])
    np.savez(folder / "0", x=numbers, y=table["id"])
    np.savez_compressed(folder / "1", x=numbers, y=table["label"], words=table["text"])
    np.savez(folder / "2", numbers)


def _safetensors(folder):
    def write(path, values):
        if values.dtype.kind in "fiub":
            tensor = torch.from_numpy(
                np.ascontiguousarray(values.astype(values.dtype.newbyteorder("=")))
            )
            save_file({"x": tensor, "y": tensor.bfloat16()}, f"{path}.safetensors")

    _arrays(folder, write)


def _separated(separator, suffix):
    def make(folder):
        table = pd.DataFrame(_columns())
        table.to_csv(folder / f"0{suffix}", sep=separator, index=False)
        table[["a", "b"]].to_csv(folder / f"1{suffix}", sep=separator, lineterminator="\r\n")
        table[["text", "label"]].to_csv(
            folder / f"2{suffix}", sep=separator, quoting=1, index=False
        )

    return make


def _parquet(folder):
    for kind in range(3):
        how = {"row_group_size": 16} if kind else {"compression": "none", "use_dictionary": False}
        pq.write_table(_table(kind), folder / f"{kind}.parquet", **how)
    pd.DataFrame(_columns()).set_index("id").to_parquet(folder / "3.parquet", compression="zstd")
    pq.write_table(_table(2), folder / "4.parquet", data_page_version="2.0", compression="gzip")


def _arrow(folder):
    for kind in range(3):
        for name, opened in (("f", pa.ipc.new_file), ("s", pa.ipc.new_stream)):
            with opened(folder / f"{kind}{name}.arrow", _table(kind).schema) as file:
                file.write_table(_table(kind), max_chunksize=16)


def _feather(folder):
    for kind in range(3):
        for how in ("lz4", "zstd", "uncompressed"):
            feather.write_feather(_table(kind), folder / f"{kind}{how}.feather", compression=how)


def _vec(folder):
    random = np.random.default_rng(0)
    rows = [f"word{k} " + " ".join(f"{v:.4f}" for v in random.normal(size=4)) for k in range(ROWS)]
    (folder / "0.vec").write_text(f"{ROWS} 4\n" + "\n".join(rows) + "\n")
    (folder / "1.vec").write_text("2 1\nNew York 1\né -2e3\n", encoding="utf-8")


def _idx(folder):
    for number, shape in enumerate(((ROWS, 4, 4), (ROWS,))):
        head = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
        pixels = np.arange(np.prod(shape)).astype(np.uint8)
        (folder / f"{number}.idx").write_bytes(head + pixels.tobytes())
        (folder / f"{number}packed.idx").write_bytes(gzip.compress(head + pixels.tobytes()))


def _damaged_file(sound, place, random):
    """One of the files in `sound`, changed, as the only one in `place`."""
    files = sorted(sound.iterdir())
    contents = [file.read_bytes() for file in files]
    which = random.randrange(len(files))
    changed = mutate(contents[which], contents, random)
    (place / f"x{files[which].suffix}").write_bytes(changed)
    return False


def _names(path):
    """The columns or keys of a file, if it has some."""
    if path.suffix in (".npy", ".vec"):
        return []
    if path.suffix in (".npz", ".safetensors"):
        return array_names(path)
    return table_columns(path) if is_table(path) else list(first_schema(path).names)


def _read_rows(place, case):
    """As the commands do, one way in each case; what is read is encoded for the networks."""
    (path,) = place.iterdir()
    if path.suffix == ".idx":
        return read_idx(path, 3 - 2 * (case % 2))
    names, way = _names(path), case % 4
    x, y = (names[number % len(names)] if names else None for number in (case // 4, case // 28))
    if way == 0:
        sides = read_pairs([path, path], x_columns=None, y_columns=None)
    elif way == 1:
        sides = read_pairs([path] if x != y else [path, path], x_columns=x, y_columns=y)
    elif way == 3 and path.suffix in SHARDS:
        sides = [open_rows(path, x).load()]
    else:
        sides = [read_column(path, x)]
    for side in sides:
        raw = as_side(side, "X")
        SideEncoder.fit(raw, "X").encode(raw)
    return None


# What the library has written, and loads. An answer must be the one of the sound input.

_QUICK = {"hidden": (8,), "folds": 2, "max_epochs": 2, "progress": False, "random_state": 0}


def _pairs():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2)).astype(np.float32)
    return x, (x + random.normal(size=x.shape)).astype(np.float32)


def _rows_of(model):
    """x and y for a model of this name."""
    x, y = _pairs()
    labels = np.array(["one", "two", "three"])[np.arange(60) % 3]
    many = np.char.add("c", (np.arange(60) % 28).astype(str))
    return {"labels": (x, labels), "table": (many, many[::-1])}.get(model, (x, y))


def _make_models(folder):
    for name, critic in (("auto", "auto"), ("separable", "separable"), ("labels", "concat")):
        PointwiseDependency(critic=critic, **_QUICK).fit(*_rows_of(name)).save(folder / name)
    table = {**_QUICK, "hidden": "auto"}
    PointwiseDependency(**table).fit(*_rows_of("table")).save(folder / "table")
    x, y = _pairs()
    from_embeddings(x, y, folds=2, progress=False).save(folder / "calibrated")


def _damaged_folder(described):
    """Damage of one file of a folder; described: the one that has the digests of the others.

    In a third of the cases the digests are made again, as by somebody who means it: then it may
    answer anything, but not fall over.
    """

    def damage(sound, place, random):
        which = random.choice(sorted(sound.iterdir()))
        shutil.copytree(which, place, dirs_exist_ok=True)
        forged = random.random() < 1 / 3
        file = place / described if forged and random.random() < 0.6 else None
        file = file or random.choice([f for f in sorted(place.iterdir()) if f.name != "sound"])
        content = file.read_bytes()
        if file.suffix == ".json" and random.random() < 0.7:
            changed = json.dumps(edit_json(json.loads(content), random)).encode("utf-8")
        elif file.suffix == ".safetensors" and random.random() < 0.3:
            size = int.from_bytes(content[:8], "little")
            head = json.dumps(edit_json(json.loads(content[8 : 8 + size]), random)).encode()
            changed = len(head).to_bytes(8, "little") + head + content[8 + size :]
        elif file.suffix == ".safetensors" and forged:
            values = np.frombuffer(content[-4096:], np.uint8).copy()
            values[-4 * random.randrange(1, 50) :] = random.choice((0xFF, 0x7F, 0))
            changed = content[:-4096] + values.tobytes()
        else:
            changed = mutate(content, [content], random)
        file.write_bytes(changed)
        (place / "sound").write_text(which.name)
        if forged:
            _sign(place, described)
        return not forged

    return damage


def _sign(place, described):
    """Write the digests again, as far as there is anything to write them in."""
    try:
        about = json.loads((place / described).read_bytes())
        parts = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in place.iterdir()}
        if described == "index.json":
            about["sha256"] = {name: parts[name] for name in about["sha256"] if name in parts}
        else:
            about["weights_sha256"] = parts["weights.safetensors"]
        about.pop("about_sha256", None)
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        (place / described).write_text(json.dumps({**about, "about_sha256": digest}), "utf-8")
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        pass


def _read_model(place, case):
    which = (place / "sound").read_text()
    model, (x, y) = PointwiseDependency.load(place, device="cpu"), _rows_of(which)
    return which, model.pmi(x[:7], y[:7]).tobytes(), model.mutual_information().nats


def _make_indices(folder):
    x, y = _pairs()
    model = PointwiseDependency(critic="separable", **_QUICK).fit(x, y)
    for kind in ("flat", "hnsw", "ivf"):
        model.index(np.tile(y, (3, 1)), kind=kind).save(folder / kind)
    model.save(folder.parent / "model-of-index")


_loaded = {}


def _read_index(place, case):
    x, _ = _pairs()
    if "model" not in _loaded:
        _loaded["model"] = PointwiseDependency.load(place.parent / "model-of-index", device="cpu")
    found = _loaded["model"].retrieve(x[:5], _loaded["model"].load_index(place), 4)
    return (place / "sound").read_text(), found.indices.tobytes(), found.pmi.tobytes()


def _state():
    torch.manual_seed(0)
    values = torch.randn(2, 30)
    return state.TrainingState.start(values, [[torch.zeros(2)], [torch.ones(2)]])


def _file(path):
    return state.Checkpoint(path, "of these rows", {"folds": 2, "method": "pc"})


def _make_checkpoints(folder):
    made = _state()
    made.epoch, made.step, made.history = 3, 12, [{"train": [0.5, None], "stop": [0.25, 1.0]}] * 3
    state.save_state(_file(folder / "0.ckpt"), made)


def _damage_checkpoint(sound, place, random):
    content = (sound / "0.ckpt").read_bytes()
    if forged := random.random() < 1 / 3:
        file = _file(sound / "0.ckpt")
        kept = dict(vars(state.load_state(file, _state())), rng=torch.get_rng_state())
        name = random.choice(sorted(kept))
        odd = (
            torch.full((2, 30), torch.nan),
            torch.zeros(3),
            None,
            -1,
            [],
            {},
            "x",
            [10**12, 10**12],
        )
        kept[name] = random.choice((*odd, torch.zeros(2, 30, dtype=torch.int8)))
        if random.random() < 0.2:
            del kept[name]
        made = _file(place / "0.ckpt")
        kind = state._FORMAT if random.random() < 0.95 else "another"
        state.write_checkpoint(made.path, kind, made.fingerprint, kept, made.settings)
    else:
        (place / "0.ckpt").write_bytes(mutate(content, [content], random))
    return not forged


def _read_checkpoint(place, case):
    found = state.load_state(_file(place / "0.ckpt"), _state())
    return pickle.dumps(
        [
            value.tolist() if isinstance(value, torch.Tensor) else value
            for name, value in sorted(vars(found).items())
            if "buffers" not in name
        ]
    )


FILES = {
    "npy": _npy,
    "npz": _npz,
    "csv": _separated(",", ".csv"),
    "tsv": _separated("\t", ".tsv"),
    "parquet": _parquet,
    "arrow": _arrow,
    "feather": _feather,
    "vec": _vec,
    "safetensors": _safetensors,
    "idx": _idx,
}
TARGETS = {name: Target(make, _damaged_file, _read_rows) for name, make in FILES.items()}
TARGETS["model"] = Target(_make_models, _damaged_folder("model.json"), _read_model)
TARGETS["index"] = Target(_make_indices, _damaged_folder("index.json"), _read_index)
TARGETS["checkpoint"] = Target(_make_checkpoints, _damage_checkpoint, _read_checkpoint)
