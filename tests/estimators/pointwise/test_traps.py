"""Answers that were once wrong without a word."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from pointdep import PointwiseDependency
from pointdep.errors import DataWarning, InputError

from .helpers import fit, pairs

X, Y = pairs()


@pytest.mark.parametrize("link", ["score", "log_ratio", "asinh"])
def test_cpc_is_normalised_over_its_reference_whatever_the_link(link):
    model = fit(method="cpc", link=link, max_epochs=5).model_
    rows = torch.randn(model.replicas, 7, model.x_map.mean.shape[1])
    log_ratio = model.log_ratio_matrix(rows, model.reference)
    mean = torch.logsumexp(log_ratio, -1) - np.log(model.reference.shape[1])
    torch.testing.assert_close(mean, torch.zeros_like(mean), atol=1e-4, rtol=0)


def test_copies_in_groups_do_not_narrow_the_interval():
    x, y = pairs(60)
    groups = np.arange(60).repeat(5)
    model = fit(x.repeat(5, 0), y.repeat(5, 0), groups=groups)
    values = model.oof_values_ - model.oof_values_.mean()
    sums = np.array([values[groups == g].sum() for g in range(60)])
    expected = np.sqrt(60 / 59 * (sums**2).sum()) / 300
    doubt = model.bias_.stderr
    assert model.mutual_information().stderr == pytest.approx(np.hypot(expected, doubt))
    assert expected > 1.8 * values.std(ddof=1) / np.sqrt(300)
    # Of given rows the whole correction is in doubt, whatever their groups.
    doubt = np.hypot(doubt, model.bias_.correction)
    new = model.mutual_information(x.repeat(5, 0), y.repeat(5, 0), groups=groups).stderr
    plain = model.mutual_information(x.repeat(5, 0), y.repeat(5, 0)).stderr
    assert new**2 - doubt**2 > 1.8**2 * (plain**2 - doubt**2)
    with pytest.raises(InputError, match="groups has 2 rows"):
        model.score(x, y, groups=[0, 1])
    with pytest.raises(InputError, match="no two rows of different groups"):
        model.score(x, y, groups=np.zeros(60))


def test_saving_keeps_what_was_fitted(tmp_path):
    model = fit(method="pc")
    before = model.pmi(X, Y)
    model.set_params(method="nwj", hidden=(3, 3), link="asinh")
    model.save(tmp_path / "model")
    again = PointwiseDependency.load(tmp_path / "model")
    assert again.method == "pc"
    np.testing.assert_array_equal(again.pmi(X, Y), before)


def test_numbers_of_numpy_are_saved(tmp_path):
    model = fit(folds=np.int64(2), method="dm2", method_options={"eta": np.float64(2.0)})
    model.save(tmp_path / "model")
    assert PointwiseDependency.load(tmp_path / "model").folds == 2


def test_one_encoder_for_both_sides_is_saved(tmp_path):
    encoder = nn.Linear(3, 4)
    x, y = pairs(x_dim=3, y_dim=3)
    model = fit(x, y, critic=(encoder, encoder))
    model.save(tmp_path / "model")
    again = PointwiseDependency.load(tmp_path / "model", critic=(encoder, encoder))
    np.testing.assert_array_equal(again.pmi(x, y), model.pmi(x, y))


def test_a_number_beyond_float32_is_refused():
    far = X.astype(np.float64)
    far[3, 0] = 1e45
    with pytest.raises(InputError, match=r"X holds a number in row 3 .* too far"):
        fit().pmi(far, Y)


def test_an_outlier_in_new_rows_does_not_run_away():
    far = X.copy()
    far[3, 0] = 1e9
    assert np.abs(fit().pmi(far, Y)).max() < 1e3


def test_a_few_rows_that_decide_are_flagged():
    values = np.random.default_rng(0).normal(size=(400, 2))
    heavy = np.sign(values) * np.abs(values) ** 15
    model = fit(heavy, heavy[:, ::-1] + 1e-3 * values, max_epochs=20)
    squares = (model.oof_values_ - model.oof_values_.mean()) ** 2
    decided = np.sort(squares)[-1:].sum() > 0.5 * squares.sum()
    assert decided == any(flag.name == "few_rows_decide" for flag in model.flags_)


def test_one_index_in_two_orders_is_noticed():
    frame, other = pd.DataFrame(X), pd.DataFrame(Y)
    with pytest.warns(DataWarning, match="same index in another order"):
        fit(frame, other[::-1])
    fit(frame, other)


def test_npmi_of_other_pairs_is_refused():
    with pytest.raises(InputError, match=r"pmi has shape \(1,\)"):
        fit().npmi(X, Y, pmi=np.zeros(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"discrete_x": "no"}, "discrete_x='no' must be True, False or None"),
        ({"hidden": "25"}, "hidden='25' must be 'auto' or layer widths"),
        ({"hidden": (16.7,)}, "must be a sequence of layer widths"),
        ({"critic": np.dot}, "must be a torch.nn.Module"),
        ({"critic": nn.Linear(99, 1)}, r"critic, called with float32 of shape .* failed"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
    ],
)
def test_options_that_used_to_pass(options, message):
    with pytest.raises(InputError, match=message):
        fit(**options)
