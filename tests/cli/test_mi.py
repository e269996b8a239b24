"""`pointdep mi`: every file format, groups, and both ways of printing."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from pointdep import ClassicalDependency, MIEstimate, PointwiseDependency
from pointdep.cli.show import print_estimate

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")

GROUPS = np.arange(200) // 4


@pytest.fixture
def reference(quick):
    """The estimate from x.npy and y.npy."""
    return quick("mi", "x.npy", "y.npy", "--json").json()["estimate"]


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


def test_a_file_of_each_kind(quick, pairs, reference):
    """All formats are in tests/data."""
    pd.DataFrame(pairs[0]).add_prefix("c").to_parquet("a.parquet")
    save_file({"only": torch.from_numpy(pairs[1])}, "b.safetensors")
    assert quick("mi", "a.parquet", "b.safetensors", "--json").json()["estimate"] == reference


def test_agrees_with_the_library(quick, like_quick, pairs, reference, check_json):
    model = like_quick(method="dm2", method_options={"eta": 2.0}, critic="separable")
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
    assert found["correction"] == expected.correction
    assert (found["null_p"], found["shuffles"], content["check"]) == (None, 0, None)


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
    assert f"99.5% interval      {low:.3f} to {high:.3f} nats\n" in outcome.out
    assert "200, each scored by a model that did not see it (2 trained)" in outcome.out
    assert outcome.out.endswith("method              pc, critic auto: closed form alone\n")
    assert "independence" not in outcome.out
    assert outcome.err
    assert all(line.startswith("warning: ") for line in outcome.err.splitlines())


@pytest.mark.parametrize(("bits", "unit", "scale"), [(False, "nats", 1.0), (True, "bits", 1.4427)])
def test_the_correction(capsys, bits, unit, scale):
    model = SimpleNamespace(n_replicas_=2, critic="auto")
    found = MIEstimate(nats=0.5, stderr=0.1, ci=(0.3, 0.7), rows=200, method="pc", correction=0.04)
    print_estimate(model, found, bits=bits)
    correction = f"{0.04 * scale:+.3f} {unit} for the bias of fitting, included above"
    assert f"correction          {correction}\n" in capsys.readouterr().out
    print_estimate(model, replace(found, correction=0.0), bits=bits)
    assert "correction" not in capsys.readouterr().out


def test_bits(quick, refused):
    outcome = quick("mi", "x.npy", "y.npy", "--bits")
    found = quick("mi", "x.npy", "y.npy", "--bits", "--json").json()["estimate"]
    low, high = np.array(found["ci"]) / math.log(2)
    assert outcome.out.splitlines()[:2] == [
        f"mutual information  {found['bits']:.3f} bits ({found['nats']:.3f} nats)",
        f"95% interval        {low:.3f} to {high:.3f} bits",
    ]
    refused(
        "--bits: --method smi estimates squared-loss mutual information",
        *("mi", "x.npy", "y.npy", "--bits", "-m", "smi"),
    )


def test_shuffles(quick, check_json):
    options = ("mi", "x.npy", "y.npy", "--shuffles", 3)
    content = quick(*options, "--json").json()
    check_json("mi", content)
    assert content["estimate"]["shuffles"] == 3
    assert content["estimate"]["null_p"] == 0.25  # no shuffled copy looks as dependent as the pairs
    told = " ".join(quick(*options).out.split())
    assert "p <= 0.25 for independence, by 3 shuffles, the least that so many can give" in told


class TestCheck:
    @pytest.fixture
    def expected(self, like_quick, pairs):
        return like_quick().fit(*pairs).check()

    def test_for_a_person_and_a_program(self, quick, expected, check_json):
        outcome = quick("mi", "x.npy", "y.npy", "--check")
        verdict = outcome.out.split("\ncheck               ")[1]
        assert " ".join(verdict.split()) == expected.verdict
        assert max(map(len, outcome.out.splitlines())) <= 100
        content = quick("mi", "x.npy", "y.npy", "--check", "--json").json()
        check_json("mi", content)
        assert content["check"]["verdict"] == expected.verdict
        assert content["check"]["passed"] is expected.passed
        assert content["check"]["plot"] is None

    def test_figure(self, quick, folder, check_json):
        outcome = quick("mi", "x.npy", "y.npy", "--check-plot", "check.png")
        assert outcome.out.endswith("\nfigure              check.png\n")
        assert (folder / "check.png").read_bytes().startswith(b"\x89PNG")
        content = quick("mi", "x.npy", "y.npy", "--check-plot", "check.svg", "--json").json()
        check_json("mi", content)
        assert content["check"]["plot"] == "check.svg"
        assert (folder / "check.svg").read_bytes().startswith(b"<?xml")

    def test_a_figure_that_cannot_be_written(self, refused, folder):
        (folder / "folder.png").mkdir()
        for message, path in (
            (r"check\.gif has the unknown suffix .*\.png, \.svg, \.pdf", "check.gif"),
            (r"folder\.png is a folder", "folder.png"),
            ("the folder nowhere does not exist", "nowhere/check.png"),
        ):
            refused(message, "mi", "x.npy", "y.npy", "--check-plot", path)


class TestClassical:
    """Methods without networks, by the same command."""

    @pytest.mark.parametrize("method", ["ksg", "cca", "ulsif", "likelihood"])
    def test_agrees_with_the_library(self, pointdep, pairs, method, check_json):
        options = ("--method", method, "--folds", 2, "--confidence", 0.8, "--quiet")
        content = pointdep("mi", "x.npy", "y.npy", *options, "--json").json()
        check_json("mi", content)
        model = ClassicalDependency(method, folds=2, random_state=0, progress=False).fit(*pairs)
        expected = model.mutual_information(confidence=0.8)
        assert content["estimate"]["nats"] == expected.nats
        assert content["estimate"]["ci"] == list(expected.ci)
        assert (content["method"], content["folds"]) == (method, 0)

    def test_what_a_person_reads(self, pointdep, pairs):
        outcome = pointdep("mi", "x.npy", "y.npy", "-m", "ksg", "--bits")
        found = ClassicalDependency("ksg", random_state=0).fit(*pairs).mutual_information()
        low, high = found.ci_bits
        assert outcome.out.splitlines() == [
            f"mutual information  {found.bits:.3f} bits ({found.nats:.3f} nats)",
            f"95% interval        {low:.3f} to {high:.3f} bits",
            "rows                200",
            "method              ksg",
            "note                ksg reads too low with more than two columns a side: compare "
            "--method pc",
        ]
        assert outcome.err == ""

    def test_categories_and_options(self, pointdep, pairs):
        labels = [(side[:, 0] > 0).astype(np.int64) for side in pairs]
        for name, values in zip("ab", labels, strict=True):
            np.save(f"{name}.npy", values)
        command = ("mi", "a.npy", "b.npy", "-m", "counting", "--json", "--method-option")
        plain = pointdep(*command, "correction=none").json()["estimate"]["nats"]
        table = np.histogram2d(*labels, bins=2)[0] / 200
        expected = (table * np.log(table / np.outer(table.sum(1), table.sum(0)))).sum()
        assert plain == pytest.approx(expected)
        assert pointdep(*command, "smoothing=1").json()["estimate"]["nats"] != plain

    def test_groups_and_device(self, pointdep, pairs):
        np.save("groups.npy", GROUPS)
        command = ("mi", "x.npy", "y.npy", "-m", "cca", "--device", "cpu", "--json")
        found = pointdep(*command, "--groups", "groups.npy").json()["estimate"]
        model = ClassicalDependency("cca", random_state=0, progress=False)
        expected = model.fit(*pairs, groups=GROUPS).mutual_information()
        assert (found["nats"], found["stderr"]) == (expected.nats, expected.stderr)
        assert found["stderr"] != pointdep(*command).json()["estimate"]["stderr"]

    @pytest.mark.parametrize(
        ("message", "options"),
        [
            ("leave out --critic, --hidden$", ["--critic", "concat", "--hidden", "16"]),
            ("leave out --max-epochs, --negatives$", ["--max-epochs", "3", "--negatives", "3"]),
            ("leave out --reference-size$", ["--reference-size", "30"]),
            ("leave out --weight-decay$", ["--weight-decay", "0.1"]),
            ("leave out --device$", ["--device", "cuda"]),
            ("leave out --shuffles$", ["--shuffles", "9"]),
            ("leave out --check, --check-plot$", ["--check", "--check-plot", "c.png"]),
            ("unknown option of method 'ksg' 'K'", ["--method-option", "K=3"]),
        ],
    )
    def test_options_of_networks(self, refused, message, options):
        refused(message, "mi", "x.npy", "y.npy", "--method", "ksg", *options)

    def test_what_has_no_mutual_information(self, refused):
        message = "--method phsic gives no mutual information: its score ranks pairs"
        refused(message, "mi", "x.npy", "y.npy", "--method", "phsic")

    def test_only_what_can_be_asked_for_is_offered(self, refused):
        refused("unknown method 'foo': choose from ((?!phsic).)*$", "mi", "x.npy", "y.npy", "-mfoo")

    @pytest.mark.parametrize(("columns", "noted"), [(2, False), (3, True)])
    def test_ksg_says_where_it_reads_too_low(self, pointdep, columns, noted):
        wide = np.random.default_rng(0).normal(size=(100, columns))
        np.save("wide.npy", wide)
        np.save("narrow.npy", wide[:, 0] + 1.0)
        outcome = pointdep("mi", "wide.npy", "narrow.npy", "--method", "ksg")
        assert ("ksg reads too low with more than two columns" in outcome.out) == noted

    def test_numbers_are_not_counted(self, refused):
        refused("counting", "mi", "x.npy", "y.npy", "--method", "counting")


def test_what_is_not_mutual_information_is_not_called_so(quick):
    outcome = quick("mi", "x.npy", "y.npy", "--method", "smi")
    assert outcome.out.startswith("squared-loss mutual information  ")
    assert "nats" not in outcome.out
    found = quick("mi", "x.npy", "y.npy", "--method", "smi", "--json").json()["estimate"]
    assert found["estimates"] == "squared-loss mutual information"


class TestGroups:
    @pytest.fixture
    def grouped(self, like_quick, pairs):
        return like_quick().fit(*pairs, groups=GROUPS).mutual_information().nats

    def test_of_their_own_file(self, quick, grouped, reference):
        np.save("groups.npy", GROUPS)
        pd.DataFrame({"g": GROUPS}).to_csv("groups.csv", index=False)
        for path in ("groups.npy", "groups.csv"):
            found = quick("mi", "x.npy", "y.npy", "--groups", path, "--json").json()["estimate"]
            assert found["nats"] == grouped != reference["nats"]

    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    def test_of_a_column_of_the_table(self, quick, table, like_quick, pairs, suffix):
        # As strings, whose order is another one than that of the numbers.
        model = like_quick().fit(*pairs, groups=[f"g{i}" for i in GROUPS])
        found = quick("mi", f"pairs{suffix}", *table, "--group-column", "g", "--json").json()
        assert found["estimate"]["nats"] == model.mutual_information().nats

    def test_of_a_column_of_another_table(self, quick, table, grouped, pairs):
        pd.DataFrame({"other": 0, "g": GROUPS}).to_csv("groups.csv", index=False)
        named = ("--groups", "groups.csv", "--group-column", "g", "--json")
        assert quick("mi", "x.npy", "y.npy", *named).json()["estimate"]["nats"] == grouped

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

    @pytest.mark.parametrize(
        ("x", "options", "sides"),
        [
            ("a.npy", (), (False, False)),
            ("labels.npy", (), (True, False)),
            ("labels.npy", ("--discrete", "none"), (False, False)),
            ("a.npy", ("--discrete", "x"), (True, False)),
            ("a.npy", ("--discrete", "y"), (False, True)),
            ("a.npy", ("--discrete", "both"), (True, True)),
        ],
    )
    def test_by_type_and_by_order(self, quick, x, options, sides):
        assert quick("fit", x, "b.npy", "-o", "model", *options).code == 0
        model = PointwiseDependency.load("model")
        assert (model.encoder_x_.discrete, model.encoder_y_.discrete) == sides

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
