"""What a user gets wrong, and is told."""

from __future__ import annotations

import numpy as np
import pytest

from pointdep import CalibratedDependency, from_embeddings, from_logits
from pointdep.errors import FitWarning, InputError
from pointdep.estimators.calibrated import pair_flags

from .helpers import draw, embeddings


def logits(rows=100):
    return draw(rows).log_ratio


def broken(value):
    table = logits()
    table[3, 4] = value
    return table


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_logits(logits()[:, :50]), r"shape \(100, 50\) but must be square"),
        (lambda: from_logits(logits()[0]), r"shape \(100,\) but must be square"),
        (lambda: from_logits(broken(np.nan)), "nan in row 3, column 4"),
        (lambda: from_logits(broken(-np.inf)), "-inf in row 3, column 4"),
        (lambda: from_logits(logits() > 0), "holds bool: give numbers"),
        (lambda: from_logits([[1.0], [1.0, 2.0]]), "no matrix"),
        (lambda: from_logits(logits(), loss="sigmod"), "did you mean 'sigmoid'"),
        (lambda: from_logits(logits(), queries="z"), "queries='z' must be 'x' or 'y'"),
        (lambda: from_logits(logits(20)), "20 pairs are too few to calibrate by"),
        (lambda: from_logits(logits(), folds=1), "folds=1 must be at least 2"),
        (lambda: from_logits(-logits(400)), "are these distances"),
        (lambda: from_logits(np.ones((100, 100))), "the logits are all the same"),
        (lambda: from_logits(10 * np.eye(100)), "give more held-out pairs"),
        (lambda: from_logits(logits(), np.zeros(100)), "a matrix holds its pairs already"),
        (lambda: from_logits(np.matmul), "X and Y are missing"),
        (lambda: from_logits(logits(), groups=np.zeros(100)), "groups has 1 distinct value"),
        (lambda: from_logits(logits(90), groups=np.arange(90) // 3), "30 groups are too few"),
        (lambda: from_embeddings(*embeddings(20)), "20 pairs are too few"),
        (lambda: from_embeddings(np.zeros((60, 2)), np.zeros((60, 3))), "must be of one space"),
        (lambda: from_embeddings(*embeddings(60), scale=-1.0), "scale=-1.0 must be a number above"),
        (lambda: from_embeddings(np.zeros((60, 2)), np.zeros((61, 2))), "inconsistent numbers"),
        (lambda: from_embeddings(["a"] * 60, ["b"] * 60), "holds strings"),
        (lambda: CalibratedDependency("separable").fit(*embeddings(60)), "unknown critic"),
        (lambda: CalibratedDependency().fit(embeddings(60)[0]), "target y is None"),
    ],
)
def test_input_errors(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, y: (x * y).sum(1), r"gave shape \(100,\): it must give \(100, 100\)"),
        (lambda x, y: x @ y, "failed: "),
        (lambda x, y: (x @ y.T) * np.nan, "gave NaN or infinity"),
    ],
)
def test_functions_that_do_not_work(function, message):
    with pytest.raises(InputError, match=message):
        from_logits(function, *embeddings(100), progress=False)


def test_an_option_that_is_misspelt():
    with pytest.raises(TypeError, match="did you mean 'normalize'"):
        CalibratedDependency(normalise=False)


@pytest.mark.parametrize(
    ("rows", "groups", "by"), [(100, None, "100 pairs"), (300, np.arange(300) // 4, "75 groups")]
)
def test_few_pairs_are_flagged(rows, groups, by):
    with pytest.warns(FitWarning, match=f"few_pairs: .*by {by}") as told:
        model = from_logits(logits(rows), groups=groups, progress=False)
    assert {one.filename for one in told} == {__file__}  # who called is told where
    assert "few_pairs" in [flag.name for flag in model.flags_]
    assert "few_pairs" in model.mutual_information().warnings[0]


@pytest.mark.parametrize(
    ("slope", "stderr", "flagged"),
    [(1.0, 0.2, False), (1.0, 0.3, True), (1.0, 0.9, True), (0.02, 0.05, False), (0, 0, False)],
)
def test_a_doubtful_slope_is_flagged(slope, stderr, flagged):
    found = pair_flags(slope, stderr, spread=1.0, count=500, grouped=False)
    assert bool(found) == flagged


def test_copies_are_flagged():
    x, y = (np.repeat(side, 2, 0) for side in embeddings(200))
    with pytest.warns(FitWarning) as told:
        from_embeddings(x, y, normalize=False, progress=False)
    assert any("duplicated_rows: " in str(one.message) for one in told)
    model = from_embeddings(
        x, y, normalize=False, groups=np.repeat(np.arange(200), 2), progress=False
    )
    assert "duplicated_rows" not in [flag.name for flag in model.flags_]


@pytest.mark.parametrize(
    ("loss", "ask", "said"),
    [
        *(
            ("sigmoid", lambda m, row=row: m.pmi([row], [0]), "0 to 299: .* read_out")
            for row in (300, -1, 0.5)
        ),
        ("sigmoid", lambda m: m.read_out(logits(), logits()), "takes no reference"),
        ("softmax_one_sided", lambda m: m.read_out(logits()), "needs reference"),
        ("softmax_one_sided", lambda m: m.read_out(logits(), logits(50)), "same queries"),
        ("sigmoid", lambda m: m.read_out([1.0, np.nan]), "logits holds NaN"),
        ("sigmoid", lambda m: m.mutual_information(shuffles=9), "shuffles .* trained elsewhere"),
    ],
)
def test_what_may_not_be_asked(loss, ask, said):
    model = from_logits(logits(300), loss=loss, progress=False)
    with pytest.raises(InputError, match=said):
        ask(model)
