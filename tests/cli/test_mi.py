"""`pointdep mi`: every file format, groups, and both ways of printing."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from pointdep import PointwiseDependency

GROUPS = np.arange(200) // 4


@pytest.fixture
def reference(quick):
    """The estimate from x.npy and y.npy."""
    return quick("mi", "x.npy", "y.npy", "--json").json()["estimate"]


def write_vec(path, values):
    lines = [f"{len(values)} {values.shape[1]}"]
    lines += [f"word{i} {' '.join(map(repr, row))}" for i, row in enumerate(values.tolist())]
    path.write_text("\n".join(lines) + "\n")


def write_sides(folder, suffix, x, y):
    for name, values in (("a", x), ("b", y)):
        path, table = folder / f"{name}{suffix}", pd.DataFrame(values).add_prefix("c")
        if suffix == ".npz":
            np.savez(path, values)
        elif suffix == ".csv":
            table.to_csv(path, index=False)
        elif suffix == ".parquet":
            table.to_parquet(path)
        elif suffix == ".safetensors":
            save_file({"only": torch.from_numpy(values)}, path)
        else:
            write_vec(path, values)


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet", ".vec", ".safetensors"])
def test_two_files_of_every_format_agree(folder, quick, pairs, reference, suffix):
    write_sides(folder, suffix, *pairs)
    assert quick("mi", f"a{suffix}", f"b{suffix}", "--json").json()["estimate"] == reference


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("keys", [("x", "y"), ("left", "right")])
def test_one_file_with_two_arrays(quick, pairs, reference, suffix, keys):
    arrays = dict(zip(keys, pairs, strict=True))
    if suffix == ".npz":
        np.savez("both.npz", **arrays)
    else:
        save_file({k: torch.from_numpy(v) for k, v in arrays.items()}, "both.safetensors")
    named = () if keys == ("x", "y") else ("--x-columns", "left", "--y-columns", "right")
    assert quick("mi", f"both{suffix}", *named, "--json").json()["estimate"] == reference


@pytest.fixture
def table(folder, pairs):
    """pairs.csv and pairs.parquet: both sides and a group of four rows each."""
    x, y = pairs
    columns = {"g": [f"g{i}" for i in GROUPS], "b": x[:, 1], "a": x[:, 0]}
    made = pd.DataFrame({**columns, "c": y[:, 0], "d": y[:, 1], "e": y[:, 2]})
    made.to_csv("pairs.csv", index=False)
    made.to_parquet("pairs.parquet")
    return ("--x-columns", "a,b", "--y-columns", "c,d,e")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_one_table_with_both_sides(quick, table, reference, suffix):
    assert quick("mi", f"pairs{suffix}", *table, "--json").json()["estimate"] == reference


def test_a_file_of_each_kind(folder, quick, pairs, reference):
    write_sides(folder, ".parquet", *pairs)
    write_sides(folder, ".vec", *pairs)
    assert quick("mi", "a.parquet", "b.vec", "--json").json()["estimate"] == reference


def test_agrees_with_the_library(quick, like_quick, pairs, reference, check_json):
    model = like_quick(method="dm2", method_options={"eta": 2.0}, critic="separable")
    with pytest.warns(UserWarning, match="still_improving"):
        model.fit(*pairs)
    expected = model.mutual_information(confidence=0.8)
    options = ("--method", "dm2", "--method-option", "eta=2", "--critic", "separable")
    content = quick("mi", "x.npy", "y.npy", *options, "--confidence", 0.8, "--json").json()
    check_json("mi", content)
    assert content["command"] == "mi"
    assert content["method"] == "dm2"
    assert content["folds"] == 2
    assert [flag["name"] for flag in content["flags"]] == [flag.name for flag in model.flags_]
    found = content["estimate"]
    assert found["nats"] == expected.nats != reference["nats"]
    assert found["bits"] == pytest.approx(expected.nats / math.log(2))
    assert found["ci"] == list(expected.ci)
    assert (found["stderr"], found["confidence"], found["rows"]) == (expected.stderr, 0.8, 200)


def test_the_seed_decides(quick, reference):
    assert quick("mi", "x.npy", "y.npy", "--json").json()["estimate"] == reference
    other = quick("mi", "x.npy", "y.npy", "--json", "--seed", 1).json()["estimate"]
    assert other["nats"] != reference["nats"]


def test_what_a_person_reads(quick):
    options = ("--method", "pc", "--confidence", 0.995)
    outcome = quick("mi", "x.npy", "y.npy", *options)
    found = quick("mi", "x.npy", "y.npy", *options, "--json").json()["estimate"]
    low, high = found["ci"]
    assert outcome.code == 0
    assert outcome.out.startswith(
        f"mutual information  {found['nats']:.3f} nats ({found['bits']:.3f} bits)\n"
    )
    assert f"99.5% interval      {low:.3f} to {high:.3f}\n" in outcome.out
    assert "200, each scored by a model that did not see it (2 trained)" in outcome.out
    assert outcome.err.startswith("warning: still_improving: ")
    assert outcome.err.count("\n") == 1


def test_what_is_not_mutual_information_is_not_called_so(quick):
    outcome = quick("mi", "x.npy", "y.npy", "--method", "smi")
    assert outcome.out.startswith("squared-loss mutual information  ")
    assert "nats" not in outcome.out
    found = quick("mi", "x.npy", "y.npy", "--method", "smi", "--json").json()["estimate"]
    assert found["estimates"] == "squared-loss mutual information"


class TestGroups:
    @pytest.fixture
    def grouped(self, like_quick, pairs):
        with pytest.warns(UserWarning, match="still_improving"):
            return like_quick().fit(*pairs, groups=GROUPS).mutual_information().nats

    def write(self, suffix):
        path = f"groups{suffix}"
        if suffix == ".npy":
            np.save(path, GROUPS)
        elif suffix == ".npz":
            np.savez(path, GROUPS)
        elif suffix == ".csv":
            pd.DataFrame({"g": GROUPS}).to_csv(path, index=False)
        else:
            pd.DataFrame({"g": GROUPS}).to_parquet(path)
        return path

    @pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
    def test_of_their_own_file(self, quick, grouped, reference, suffix):
        path = self.write(suffix)
        found = quick("mi", "x.npy", "y.npy", "--groups", path, "--json").json()["estimate"]
        assert found["nats"] == grouped != reference["nats"]

    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    def test_of_a_column_of_the_table(self, quick, table, like_quick, pairs, suffix):
        # As strings, whose order is another one than that of the numbers.
        with pytest.warns(UserWarning, match="still_improving"):
            model = like_quick().fit(*pairs, groups=[f"g{i}" for i in GROUPS])
        found = quick("mi", f"pairs{suffix}", *table, "--group-column", "g", "--json").json()
        assert found["estimate"]["nats"] == model.mutual_information().nats

    def test_of_a_column_of_another_table(self, quick, table, grouped, pairs):
        pd.DataFrame({"other": 0, "g": GROUPS}).to_csv("groups.csv", index=False)
        outcome = quick(
            "mi", "x.npy", "y.npy", "--groups", "groups.csv", "--group-column", "g", "--json"
        )
        assert outcome.json()["estimate"]["nats"] == grouped

    def test_of_an_array_beside_both_sides(self, quick, grouped, pairs):
        np.savez("both.npz", x=pairs[0], y=pairs[1], who=GROUPS)
        found = quick("mi", "both.npz", "--group-column", "who", "--json").json()["estimate"]
        assert found["nats"] == grouped

    def test_errors(self, refused, table):
        two = ("mi", "x.npy", "y.npy")
        refused("--group-column needs --groups FILE", *two, "--group-column", "g")
        refused(r"pairs\.csv has 6 columns: name one of g, b, a", *two, "--groups", "pairs.csv")
        asked = ("mi", "pairs.csv", *table, "--group-column", "gg")
        refused(r"pairs\.csv: unknown column 'gg': did you mean 'g'", *asked)
        np.save("few.npy", GROUPS // 30)
        refused("groups has 2 distinct value", *two, "--groups", "few.npy")
        np.save("short.npy", GROUPS[:-1])
        refused("groups has 199 rows", *two, "--groups", "short.npy")


class TestCategories:
    @pytest.fixture(autouse=True)
    def labels(self, folder, pairs):
        """a.npy and b.npy: zeros and ones, which are numbers as floats and labels as integers."""
        np.save("a.npy", (pairs[0][:, 0] > 0).astype(np.float64))
        np.save("b.npy", (pairs[1][:, 0] > 0).astype(np.float64))
        np.save("labels.npy", (pairs[0][:, 0] > 0).astype(np.int64))

    def sides(self, quick, x, *options):
        """Whether each side of the model was read as categories."""
        assert quick("fit", x, "b.npy", "-o", "model", *options).code == 0
        model = PointwiseDependency.load("model")
        return model.encoder_x_.discrete, model.encoder_y_.discrete

    def test_by_type(self, quick):
        assert self.sides(quick, "a.npy") == (False, False)
        assert self.sides(quick, "labels.npy") == (True, False)

    def test_by_order(self, quick):
        assert self.sides(quick, "labels.npy", "--discrete", "none") == (False, False)
        assert self.sides(quick, "a.npy", "--discrete", "x") == (True, False)
        assert self.sides(quick, "a.npy", "--discrete", "y") == (False, True)
        assert self.sides(quick, "a.npy", "--discrete", "both") == (True, True)

    def test_strings_of_a_table(self, quick, pairs):
        x, y = pairs
        words = np.where(x[:, 0] > 0, "up", "down")
        pd.DataFrame({"w": words, "v": y[:, 0]}).to_csv("words.csv", index=False)
        options = ("--x-columns", "w", "--y-columns", "v", "--json")
        assert quick("mi", "words.csv", *options).json()["estimate"]["rows"] == 200


def test_a_constant_column_is_dropped_with_a_warning(quick, pairs, reference):
    np.save("wide.npy", np.column_stack([pairs[0], np.full(200, 7.0)]))
    outcome = quick("mi", "wide.npy", "y.npy", "--json")
    assert outcome.json()["estimate"] == reference
    first, *rest = outcome.err.splitlines()
    assert first == "warning: X: dropped 1 column(s) that have one value throughout: '2'"
    assert all(line.startswith("warning: ") for line in rest)


def test_one_fold(quick):
    content = quick("mi", "x.npy", "y.npy", "--json", "--folds", 1).json()
    assert content["folds"] == 1
    assert content["estimate"]["rows"] == 40  # the fifth that the one model did not see
