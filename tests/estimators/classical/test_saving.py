"""Classical estimators on disk, on the command line, and on rows that they cannot read."""

import json

import numpy as np
import pandas as pd
import pytest

from pointdep import ClassicalDependency, ModelFileError, PointwiseDependency
from pointdep.cli.app import run
from pointdep.data import storage
from refusals import refused

ROWS = 300
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((ROWS, 2))
Y = X[:, :1] + RANDOM.standard_normal((ROWS, 1))
WORDS = np.where(X[:, 0] > 0, "up", "down")
LETTERS = np.where(RANDOM.random(ROWS) > 0.2, np.where(X[:, 0] > 0, "u", "d"), "z")

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.PointdepWarning")


@pytest.mark.parametrize(
    ("method", "x", "y"),
    [
        ("counting", WORDS, LETTERS),
        ("counting", np.column_stack([WORDS, LETTERS]), LETTERS),
        ("cca", X, Y),
        ("likelihood", X, Y),
        ("likelihood", X, WORDS),
        ("ulsif", X, Y),
        ("phsic", X, Y),
        ("ksg", X, Y),
    ],
)
def test_a_saved_one_answers_as_before(method, x, y, tmp_path):
    model = ClassicalDependency(method, folds=2, random_state=0, progress=False).fit(x, y)
    model.save(tmp_path / "model")
    again = ClassicalDependency.load(tmp_path / "model")
    assert again.get_params()["random_state"] == 0
    if method != "phsic":
        assert again.mutual_information() == model.mutual_information()
    if method != "ksg":
        np.testing.assert_array_equal(again.pmi(x[:50], y[:50]), model.pmi(x[:50], y[:50]))
        np.testing.assert_array_equal(again.oof_pmi_, model.oof_pmi_)
    again.save(tmp_path / "again")
    for name in ("model.json", "weights.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    refused("holds a model of other data", model.fit(x[:-1], y[:-1]).save, tmp_path / "model")


def test_rows_without_an_answer_are_saved_too(tmp_path):
    gap, once = X.copy(), WORDS.astype("U6")
    gap[3, 0], once[7] = np.nan, "once"
    for method, x, y, options in (
        ("cca", gap, Y, {"missing": "drop", "folds": np.int64(2)}),
        ("ksg", X, once, {"method_options": {"k": np.int64(3)}}),
    ):
        model = ClassicalDependency(method, random_state=0, progress=False, **options).fit(x, y)
        model.save(tmp_path / method)
        again = ClassicalDependency.load(tmp_path / method)
        assert again.mutual_information() == model.mutual_information()
        assert np.isnan(again.mi_values_ if method == "ksg" else again.oof_pmi_).sum() == 1


def test_what_is_no_such_model(tmp_path):
    model = ClassicalDependency("cca", progress=False).fit(X, Y)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="trains no network"):
        PointwiseDependency.load(tmp_path / "model")
    about, tensors = storage.read_model(tmp_path / "model")
    for wrong in ({"class": "os.system", "fields": {}}, {"class": "Canonical", "fields": {"x": 1}}):
        changed = {**about, "parts": {**about["parts"], "model": wrong}}
        storage.write_model(tmp_path / "wrong", changed, tensors)
        with pytest.raises(ModelFileError, match="lacks a part or holds a wrong one"):
            ClassicalDependency.load(tmp_path / "wrong")


def test_fit_and_score_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"x": WORDS, "y": LETTERS, "id": np.arange(ROWS)})
    table.to_csv("t.csv", index=False)
    fit = ["fit", "t.csv", "--x-columns", "x", "--y-columns", "y", "-m", "counting"]
    assert run([*fit, "-o", "model", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    model = ClassicalDependency("counting", random_state=0).fit(table[["x"]], table[["y"]])
    assert content["estimate"]["nats"] == model.mutual_information().nats
    table.loc[[3, 5], ["x", "y"]] = [["left", "u"], ["up", "q"]]
    table[["id", "y", "x"]].to_csv("new.csv", index=False)
    assert run(["score", "model", "new.csv", "--carry", "id", "-o", "out.csv"]) == 0
    found = pd.read_csv("out.csv")
    fine = found["reason"].isna()
    assert found["id"][~fine].tolist() == [3, 5]
    expected = model.pmi(table[["x"]][fine], table[["y"]][fine])
    np.testing.assert_allclose(found["pmi"][fine], expected, rtol=1e-5)
    shares = [pd.Series(one).value_counts(normalize=True) for one in (WORDS, LETTERS)]
    joint = found["pmi"] + np.log(table["x"].map(shares[0])) + np.log(table["y"].map(shares[1]))
    np.testing.assert_allclose(found["npmi"][fine], (found["pmi"] / -joint)[fine], rtol=1e-4)
    capsys.readouterr()
    assert run(["score", "model", "new.csv", "--strict"]) == 2
    assert "'left' in row 3, a category unseen" in capsys.readouterr().err
    fit = ["fit", "t.csv", "--x-columns", "x", "--y-columns", "y", "-o", "other", "-m"]
    for options in (["ksg"], ["counting", "--hidden", "3"], ["counting", "--checkpoint", "c"]):
        assert run([*fit, *options]) == 2
        assert "--method" in capsys.readouterr().err
