"""`pointdep mi`: every file format, groups, and both ways of printing."""

import io
import math
import re
import resource
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

import pointdep.cli.mi as mi_module
from pointdep import ClassicalDependency, MIEstimate, PointwiseDependency
from pointdep.cli.show import print_estimate
from pointdep.estimators.first_estimate import first_estimate

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
GROUPS = np.arange(200) // 4
FILE_SIZE = resource.RLIMIT_FSIZE
MI = "mi x.npy y.npy"


@pytest.fixture
def estimate(quick):
    """What `pointdep mi` estimates from these files with these options."""
    return lambda *arguments: quick("mi", *arguments, "--json").json()["estimate"]


@pytest.fixture
def reference(estimate):
    return estimate("x.npy y.npy")


@pytest.fixture
def table(folder, pairs):
    """pairs.csv and pairs.parquet: both sides and a group of four rows each."""
    x, y = pairs
    columns = {"g": [f"g{i}" for i in GROUPS], "b": x[:, 1], "a": x[:, 0]}
    made = pd.DataFrame({**columns, "c": y[:, 0], "d": y[:, 1], "e": y[:, 2]})
    made.to_csv("pairs.csv", index=False)
    made.to_parquet("pairs.parquet")
    return "--x-columns a,b --y-columns c,d,e"


def test_files_of_other_kinds(estimate, pairs, reference, table):
    """All formats are in tests/data."""
    for keys, named in ((("x", "y"), ""), (("l", "r"), "--x-columns l --y-columns r")):
        arrays = dict(zip(keys, pairs, strict=True))
        np.savez("both.npz", **arrays)
        save_file({k: torch.from_numpy(v) for k, v in arrays.items()}, "both.safetensors")
        for path in ("both.npz", "both.safetensors"):
            assert estimate(path, named) == reference
    for path in ("pairs.csv", "pairs.parquet"):
        assert estimate(path, table) == reference
    pd.DataFrame(pairs[0]).add_prefix("c").to_parquet("a.parquet")
    save_file({"only": torch.from_numpy(pairs[1])}, "b.safetensors")
    assert estimate("a.parquet", "b.safetensors") == reference


def test_agrees_with_the_library(quick, like_quick, pairs, reference, check_json, estimate):
    model = like_quick(method="dm2", method_options={"eta": 2.0}, critic="separable").fit(*pairs)
    expected = model.mutual_information(confidence=0.8)
    options = "--method dm2 --method-option eta=2 --critic separable --confidence 0.8 --json"
    content = quick(MI, options).json()
    check_json("mi", content)
    assert (content["command"], content["method"], content["folds"]) == ("mi", "dm2", 2)
    assert [flag["name"] for flag in content["flags"]] == [flag.name for flag in model.flags_]
    found = content["estimate"]
    assert found["nats"] == expected.nats != reference["nats"]
    assert found["bits"] == pytest.approx(expected.nats / math.log(2))
    assert found["ci"] == list(expected.ci)
    assert (found["stderr"], found["confidence"], found["rows"]) == (expected.stderr, 0.8, 200)
    assert found["correction"] == expected.correction
    assert (found["null_p"], found["shuffles"], content["check"]) == (None, 0, None)
    assert estimate("x.npy y.npy") == reference
    assert estimate("x.npy y.npy --seed 1")["nats"] != reference["nats"]
    content = quick(MI, "--json --folds 1 --critic concat").json()
    assert content["folds"] == 1
    assert content["estimate"]["rows"] == 40  # the fifth that the one model did not see


def test_what_a_person_reads(quick, estimate):
    options = "--method pc --confidence 0.995"
    outcome, found = quick(MI, options), estimate("x.npy y.npy", options)
    low, high = found["ci"]
    assert outcome.code == 0
    told = f"mutual information  {found['nats']:.3f} nats ({found['bits']:.3f} bits)\n"
    assert outcome.out.startswith(told)
    assert f"99.5% interval      {low:.3f} to {high:.3f} nats\n" in outcome.out
    assert "200, each scored by a model that did not see it (2 trained)" in outcome.out
    assert outcome.out.endswith("method              pc, critic auto: closed form alone\n")
    assert "independence" not in outcome.out
    assert outcome.err
    assert all(line.startswith("warning: ") for line in outcome.err.splitlines())


def test_the_correction_and_shuffles(capsys, quick, check_json):
    model = SimpleNamespace(n_replicas_=2, critic="auto")
    found = MIEstimate(nats=0.5, stderr=0.1, ci=(0.3, 0.7), rows=200, method="pc", correction=0.04)
    for bits, told in ((False, "+0.040 nats"), (True, "+0.058 bits")):
        print_estimate(model, found, bits=bits)
        said = f"correction          {told} for the bias of fitting, included above\n"
        assert said in capsys.readouterr().out
        print_estimate(model, replace(found, correction=0.0), bits=bits)
        assert "correction" not in capsys.readouterr().out
    content = quick(MI, "--shuffles 3 --json").json()
    check_json("mi", content)
    assert content["estimate"]["shuffles"] == 3
    assert content["estimate"]["null_p"] == 0.25  # no shuffled copy looks as dependent as the pairs
    told = " ".join(quick(MI, "--shuffles 3").out.split())
    assert "p <= 0.25 for independence, by 3 shuffles, the least that so many can give" in told


def test_bits_and_what_is_not_mutual_information(quick, estimate, refused):
    outcome, found = quick(MI, "--bits"), estimate("x.npy y.npy --bits")
    low, high = np.array(found["ci"]) / math.log(2)
    assert outcome.out.splitlines()[:2] == [
        f"mutual information  {found['bits']:.3f} bits ({found['nats']:.3f} nats)",
        f"95% interval        {low:.3f} to {high:.3f} bits",
    ]
    named = "squared-loss mutual information"
    refused(f"--bits: --method smi estimates {named}", MI, "--bits -m smi")
    outcome = quick(MI, "--method smi")
    assert outcome.out.startswith(f"{named}  ")
    assert "nats" not in outcome.out
    assert estimate("x.npy y.npy --method smi")["estimates"] == named


class TestCheck:
    def test_for_a_person_and_a_program(self, quick, like_quick, pairs, check_json):
        expected, outcome = like_quick().fit(*pairs).check(), quick(MI, "--check")
        assert " ".join(outcome.out.split("\ncheck               ")[1].split()) == expected.verdict
        assert max(map(len, outcome.out.splitlines())) <= 100
        content = quick(MI, "--check --json").json()
        check_json("mi", content)
        told = {"verdict": expected.verdict, "passed": expected.passed, "plot": None}
        assert content["check"].items() >= told.items()

    def test_figure(self, quick, folder, check_json, refused):
        assert quick(MI, "--check-plot check.png").out.endswith("\nfigure              check.png\n")
        assert (folder / "check.png").read_bytes().startswith(b"\x89PNG")
        content = quick(MI, "--check-plot check.svg --json").json()
        check_json("mi", content)
        assert content["check"]["plot"] == "check.svg"
        assert (folder / "check.svg").read_bytes().startswith(b"<?xml")
        (folder / "folder.png").mkdir()
        for message, path in (
            (r"check\.gif has the unknown suffix .*\.png, \.svg, \.pdf", "check.gif"),
            (r"folder\.png is a folder", "folder.png"),
            ("the folder nowhere does not exist", "nowhere/check.png"),
        ):
            refused(message, MI, "--check-plot", path)
        before, kept = (folder / "check.png").read_bytes(), resource.getrlimit(FILE_SIZE)
        try:  # as on a full disk
            resource.setrlimit(FILE_SIZE, (8192, kept[1]))
            full = quick(MI, "--check-plot check.png")
        finally:
            resource.setrlimit(FILE_SIZE, kept)
        assert full.code == 2
        assert full.err.endswith("pointdep: check.png cannot be written: File too large\n")
        assert (folder / "check.png").read_bytes() == before
        assert not list(folder.glob(".*"))


class TestCurve:
    """What holds whatever the model, and how the mean over unseen rows has grown."""

    def test_for_a_person_and_a_program(self, quick, like_quick, pairs, check_json):
        expected = like_quick().fit(*pairs).mutual_information()
        content = quick(MI, "--json").json()
        check_json("mi", content)
        found = content["estimate"]
        assert (found["lower"], found["curve"]) == (expected.lower, expected.curve.to_dict())
        assert found["curve"]["rows"] == [100, 200]
        for unit in ("nats", "bits"):
            told = quick(MI, f"--{unit}" if unit == "bits" else "").out
            value = expected.lower / (math.log(2) if unit == "bits" else 1)
            limit = f"{value:.3f} {unit} (95% one-sided limit, even if the model is wrong)"
            assert f"\nat least            {limit}\n" in told
            assert f"\nheld-out mean       {expected.curve.in_words(unit)}\n" in told

    def test_left_out_and_drawn(self, quick, check_json, folder, refused):
        content = quick(MI, "--no-curve --json").json()
        check_json("mi", content)
        assert content["estimate"]["curve"] is None
        assert content["estimate"]["lower"] is not None
        assert "held-out mean" not in quick(MI, "--no-curve").out
        assert quick(MI, "--curve-plot curve.png").out.endswith("\ncurve figure        curve.png\n")
        assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
        for message, options in (
            ("leave out --no-curve", "--no-curve --curve-plot a.png"),
            (r"a\.gif has the unknown suffix", "--curve-plot a.gif"),
            ("trains no networks: leave out --curve-plot", "--method ksg --curve-plot a.png"),
            ("rows are streamed", "--stream --curve-plot a.png"),
        ):
            refused(message, MI, options)
        np.save("few.npy", np.load("x.npy")[:40])
        refused("but 40 rows are too few", "mi few.npy few.npy --quiet --curve-plot a.png")


class TestClassical:
    """Methods without networks, by the same command."""

    @pytest.mark.parametrize("method", ["ksg", "cca", "ulsif", "likelihood"])
    def test_agrees_with_the_library(self, pointdep, pairs, method, check_json):
        options = "--folds 2 --confidence 0.8 --quiet --json"
        content = pointdep(MI, "--method", method, options).json()
        check_json("mi", content)
        model = ClassicalDependency(method, folds=2, random_state=0, progress=False).fit(*pairs)
        expected = model.mutual_information(confidence=0.8)
        assert content["estimate"]["nats"] == expected.nats
        assert content["estimate"]["ci"] == list(expected.ci)
        assert (content["method"], content["folds"]) == (method, 0)

    def test_what_a_person_reads(self, pointdep, pairs):
        outcome = pointdep(MI, "-m ksg --bits")
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
        np.save("narrow.npy", pairs[1][:, 0])
        assert "too low" not in pointdep("mi x.npy narrow.npy -m ksg").out

    def test_categories_options_groups_and_device(self, pointdep, pairs):
        labels = [(side[:, 0] > 0).astype(np.int64) for side in pairs]
        for name, values in zip("ab", labels, strict=True):
            np.save(f"{name}.npy", values)
        command = ("mi a.npy b.npy -m counting --json --method-option",)
        plain = pointdep(*command, "correction=none").json()["estimate"]["nats"]
        table = np.histogram2d(*labels, bins=2)[0] / 200
        expected = (table * np.log(table / np.outer(table.sum(1), table.sum(0)))).sum()
        assert plain == pytest.approx(expected)
        assert pointdep(*command, "smoothing=1").json()["estimate"]["nats"] != plain
        np.save("groups.npy", GROUPS)
        command = (MI, "-m cca --device cpu --json")
        found = pointdep(*command, "--groups groups.npy").json()["estimate"]
        model = ClassicalDependency("cca", random_state=0, progress=False)
        expected = model.fit(*pairs, groups=GROUPS).mutual_information()
        assert (found["nats"], found["stderr"]) == (expected.nats, expected.stderr)
        assert found["stderr"] != pointdep(*command).json()["estimate"]["stderr"]

    def test_refused(self, refused):
        for message, options in (
            ("leave out --critic, --hidden$", "ksg --critic concat --hidden 16"),
            ("leave out --max-epochs, --negatives$", "ksg --max-epochs 3 --negatives 3"),
            ("leave out --reference-size$", "ksg --reference-size 30"),
            ("leave out --weight-decay$", "ksg --weight-decay 0.1"),
            ("leave out --device$", "ksg --device cuda"),
            ("leave out --shuffles$", "ksg --shuffles 9"),
            ("trains no networks: leave out --stream$", "ksg --stream"),
            ("leave out --check, --check-plot$", "ksg --check --check-plot c.png"),
            ("unknown option of method 'ksg' 'K'", "ksg --method-option K=3"),
            ("phsic gives no mutual information: its score ranks pairs", "phsic"),
            ("unknown method 'foo': choose from ((?!phsic).)*$", "foo"),
            ("counting", "counting"),  # of numbers
        ):
            refused(message, MI, "--method", options)


class TestGroups:
    def test_of_a_file(self, estimate, like_quick, reference, pairs):
        grouped = like_quick().fit(*pairs, groups=GROUPS).mutual_information()
        assert grouped.stderr != reference["stderr"]
        np.save("groups.npy", GROUPS)
        pd.DataFrame({"g": GROUPS}).to_csv("groups.csv", index=False)
        pd.DataFrame({"other": 0, "g": GROUPS}).to_csv("more.csv", index=False)
        np.savez("both.npz", x=pairs[0], y=pairs[1], who=GROUPS)
        for words in (
            "x.npy y.npy --groups groups.npy",
            "x.npy y.npy --groups groups.csv",
            "x.npy y.npy --groups more.csv --group-column g",
            "both.npz --group-column who",
        ):
            found = estimate(words)
            assert (found["nats"], found["stderr"]) == (grouped.nats, grouped.stderr)

    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    def test_of_a_column_of_the_table(self, estimate, table, like_quick, pairs, suffix):
        # As strings, whose order is another one than that of the numbers.
        model = like_quick().fit(*pairs, groups=[f"g{i}" for i in GROUPS])
        found = estimate(f"pairs{suffix}", table, "--group-column g")
        assert found["nats"] == model.mutual_information().nats

    def test_errors(self, refused, table):
        np.save("few.npy", GROUPS // 30)
        np.save("short.npy", GROUPS[:-1])
        for message, words in (
            ("--group-column needs --groups FILE", f"{MI} --group-column g"),
            (r"pairs\.csv has 6 columns: name one of g, b, a", f"{MI} --groups pairs.csv"),
            ("unknown column 'gg': did you mean 'g'", f"mi pairs.csv {table} --group-column gg"),
            ("groups has 2 distinct value", f"{MI} --groups few.npy"),
            ("groups has 199 rows", f"{MI} --groups short.npy"),
        ):
            refused(message, words)


@pytest.mark.parametrize(
    ("words", "sides"),
    [
        ("a.npy", (False, False)),
        ("labels.npy", (True, False)),
        ("labels.npy --discrete none", (False, False)),
        ("a.npy --discrete x", (True, False)),
        ("a.npy --discrete y", (False, True)),
        ("a.npy --discrete both", (True, True)),
    ],
)
def test_categories_by_type_and_by_order(quick, pairs, words, sides):
    """Zeros and ones are numbers as floats and labels as integers."""
    np.save("a.npy", (pairs[0][:, 0] > 0).astype(np.float64))
    np.save("b.npy", (pairs[1][:, 0] > 0).astype(np.float64))
    np.save("labels.npy", (pairs[0][:, 0] > 0).astype(np.int64))
    x, _, options = words.partition(" ")
    assert quick("fit", x, "b.npy -o model", options).code == 0
    model = PointwiseDependency.load("model")
    assert (model.encoder_x_.discrete, model.encoder_y_.discrete) == sides


def test_strings_of_a_table_and_a_constant_column(quick, estimate, pairs, reference):
    words = np.where(pairs[0][:, 0] > 0, "up", "down")
    pd.DataFrame({"w": words, "v": pairs[1][:, 0]}).to_csv("words.csv", index=False)
    assert estimate("words.csv --x-columns w --y-columns v")["rows"] == 200
    np.save("wide.npy", np.column_stack([pairs[0], np.full(200, 7.0)]))
    outcome = quick("mi", "wide.npy", "y.npy", "--json")
    assert outcome.json()["estimate"] == reference
    first, *rest = outcome.err.splitlines()
    assert first == "warning: X: dropped 1 column(s) that have one value throughout: '2'"
    assert all(line.startswith("warning: ") for line in rest)


def test_quick_trains_nothing(pointdep, pairs, folder, check_json):
    outcome = pointdep("mi x.npy y.npy --quick --confidence 0.9")
    assert "no networks" in outcome.out
    told = pointdep("mi x.npy y.npy --quick --confidence 0.9 --json").json()
    check_json("mi", told)
    found = first_estimate(*pairs)
    low, high = told["estimate"]["ci"]
    assert (told["method"], told["folds"], told["estimate"]["rows"]) == (found.method, 0, 200)
    assert told["estimate"]["nats"] == pytest.approx(found.nats)
    assert low < found.nats < high
    outcome = pointdep("mi x.npy y.npy --quick --check --method nwj")
    assert outcome.code == 2
    assert "leave out --method, --check" in outcome.err


def test_a_first_estimate_stands_on_a_terminal_until_the_answer(pointdep, folder, monkeypatch):
    how = "mi x.npy y.npy --hidden 4 --folds 2 --max-epochs 1"
    assert "first estimate" not in pointdep(how).err
    monkeypatch.setattr("pointdep.cli.mi.sys", SimpleNamespace(stderr=_Terminal()))
    assert "first estimate" not in pointdep(how, "--json").err
    outcome = pointdep(how)
    shown = mi_module.sys.stderr.getvalue()
    assert re.match(r"first estimate: \d\.\d\d nats, .* \(nearest neighbours\)", shown)
    assert shown.endswith("\x1b[1A\x1b[2K")
    assert "warning:" in outcome.err  # what waited is said after all
    assert "mutual information" in outcome.out


class _Terminal(io.StringIO):
    def isatty(self):
        return True
