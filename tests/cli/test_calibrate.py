"""`pointdep calibrate`: embeddings in, a model for the other commands out."""

import numpy as np
import pandas as pd
import pytest

from pointdep import FitWarning, PointwiseDependency, from_embeddings

CALIBRATE = "calibrate a.npy b.npy --loss softmax --scale 5 -o model --quiet"


@pytest.fixture
def towers(folder):
    """Embeddings of 300 pairs, in a.npy and b.npy."""
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 6)).astype(np.float32)
    y = (x + random.normal(size=x.shape)).astype(np.float32)
    np.save("a.npy", x)
    np.save("b.npy", y)
    return x, y


def test_as_from_embeddings_and_taken_by_score_and_retrieve(pointdep, towers, check_json):
    found = pointdep(CALIBRATE, "--json").json()
    check_json("calibrate", found)
    expected = from_embeddings(*towers, loss="softmax", scale=5.0, progress=False)
    assert found["estimate"]["nats"] == pytest.approx(expected.mutual_information().nats)
    assert found["slope"] == pytest.approx(expected.slope_)
    assert found["check"]["passed"] == expected.check().passed
    assert np.array_equal(PointwiseDependency.load("model").pmi(*towers), expected.pmi(*towers))
    said = pointdep(CALIBRATE)
    assert said.code == 0, said.err
    assert "calibration" in said.out
    assert "log r = " in said.out
    told = "300, each scored by a calibration that did not see it (5 made, none trained)"
    assert told in " ".join(said.out.split())
    assert pointdep("score model a.npy b.npy -o pmi.csv --quiet").code == 0
    model, table = PointwiseDependency.load("model"), pd.read_csv("pmi.csv")
    assert table["pmi"].to_numpy() == pytest.approx(model.pmi(*towers), abs=1e-4)
    assert (table["stderr"] > 0).all()
    assert pointdep("retrieve model a.npy b.npy -k 2 -o best.csv --quiet").code == 0
    best = pd.read_csv("best.csv")["candidate"].to_numpy().reshape(-1, 2)
    assert np.array_equal(best[:, 0], model.pmi_matrix(*towers).argmax(1))


def test_folds_the_pmi_of_these_pairs_and_the_other_direction(pointdep, towers):
    assert pointdep(CALIBRATE, "--folds 3 --oof oof.csv --json").json()["folds"] == 3
    with pytest.warns(FitWarning, match="check_fails"):  # cosines of Gaussians are not log r
        expected = from_embeddings(*towers, loss="softmax", scale=5.0, folds=3, progress=False)
    table = pd.read_csv("oof.csv")
    assert table["row"].tolist() == list(range(300))
    assert table["pmi"].to_numpy() == pytest.approx(expected.oof_pmi_, abs=1e-4)
    options = "--loss softmax_one_sided --queries y --as-they-are -o model --quiet"
    assert pointdep("calibrate a.npy b.npy", options).code == 0
    model = PointwiseDependency.load("model")
    assert (model.loss, model.queries, model.normalize) == ("softmax_one_sided", "y", False)


def test_mistakes(refused, towers):
    for message, arguments in (
        ("did you mean 'sigmoid'", "a.npy b.npy --loss sigmoyd -o m"),
        ("must be of one space", "x.npy y.npy -o m"),
        ("folds=1 must be at least 2", "a.npy b.npy --folds 1 -o m"),
        ("pmi.txt", "a.npy b.npy --oof pmi.txt -o m"),
        ("has no folder img_emb", ". -o m"),
        ("pmi.html has the unknown suffix", "a.npy b.npy --kept pmi.html -o m"),
        ("would overwrite a.npy", "a.npy b.npy -o a.npy"),
    ):
        refused(message, "calibrate", arguments)


def test_what_a_score_means_and_the_pairs_that_are_kept(pointdep, towers, folder, check_json):
    x, y = (side.copy() for side in towers)
    x, y = np.tile(x, (2, 1)), np.tile(y, (2, 1))
    y[300:] += np.random.default_rng(1).normal(size=(300, 6))
    y[:30] = y[np.roll(np.arange(30), 1)]
    caption = [f"caption {row}" for row in range(600)]
    for name in ("img_emb", "text_emb", "metadata"):
        (folder / "clip" / name).mkdir(parents=True)
    for part in range(12):  # part 10 comes after part 9
        rows = slice(50 * part, 50 * part + 50)
        for name, side in (("img_emb", x), ("text_emb", y)):
            np.save(f"clip/{name}/{name}_{part}.npy", side[rows].astype(np.float16))
        table = pd.DataFrame({"caption": caption[rows], "number": range(rows.start, rows.stop)})
        table.to_parquet(f"clip/metadata/metadata_{part}.parquet")
    line = "calibrate clip --loss softmax -o m --quiet --fdr 0.25 --kept kept.csv"
    found = pointdep(line, "--json").json()
    check_json("calibrate", found)
    kept = pd.read_csv("kept.csv")
    assert (kept["row"] == kept["number"]).all()
    assert list(kept["caption"]) == [caption[row] for row in kept["row"]]
    pairs = [side.astype(np.float16).astype(float) for side in (x, y)]
    one, other = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in pairs)
    score = (one * other).sum(1)
    np.testing.assert_allclose(kept["score"], score[kept["row"]], rtol=1e-6)
    (rate,) = [one for one in found["rates"] if one["fdr"] == 0.25]
    assert rate["kept"] == pytest.approx(len(kept) / 600)
    left_out = np.setdiff1d(np.arange(600), kept["row"])
    assert rate["cut"] == (pytest.approx(score[left_out].max()) if len(left_out) else None)
    for name in ("score", "pmi", "below"):
        values = [one[name] for one in found["scores"]]
        assert values == sorted(values)
    middle = next(one for one in found["scores"] if 0.4 < one["below"] < 0.6)
    assert middle["score"] == pytest.approx(np.median(score), abs=0.02)
    assert 0.0 <= found["scores"][0]["right"] < middle["right"] <= 1.0
    said = pointdep(line).out
    assert "score      PMI   right  pairs below" in said
    assert f"{len(kept)} pairs kept in kept.csv" in said
