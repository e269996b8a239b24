"""Pointwise HSIC, against the kernel matrices it stands for."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from pointdep.errors import InputError

from .helpers import fit, gaussians, labelled


def direct(x, y, new_x, new_y):
    """1/n sum_i k(x, x_i) l(y, y_i), both kernels centred, by loops over kernel values."""

    def centred(rows, new):
        distances = np.array([np.linalg.norm(a - b) for a in rows for b in rows])
        width = np.median(distances[distances > 0])

        def kernel(one, other):
            return np.array(
                [[np.exp(-np.square(a - b).sum() / (2 * width**2)) for b in other] for a in one]
            )

        gram, cross = kernel(rows, rows), kernel(new, rows)
        return cross - gram.mean(0) - cross.mean(1, keepdims=True) + gram.mean()

    return (centred(x, new_x) * centred(y, new_y)).mean(1)


@pytest.mark.parametrize("new", [False, True])
def test_all_rows_as_landmarks_is_the_kernel(new):
    x, y, _ = gaussians(50)
    other = gaussians(20, seed=1)[:2] if new else (x, y)
    model = fit("phsic", x, y, features=50)
    scaled = [
        [(v - a.mean(0)) / a.std(0) for v in (a, b)] for a, b in zip((x, y), other, strict=True)
    ]
    wanted = direct(scaled[0][0], scaled[1][0], scaled[0][1], scaled[1][1])
    np.testing.assert_allclose(model.pmi(*other), wanted, atol=1e-6)


def test_it_ranks_pairs():
    x, y, pmi = gaussians(1000)
    model = fit("phsic", x, y)
    assert spearmanr(model.oof_pmi_, pmi).statistic > 0.5
    fresh = gaussians(1000, seed=1)
    assert spearmanr(model.pmi(*fresh[:2]), fresh[2]).statistic > 0.5


def test_few_landmarks_are_close_to_all():
    x, y, _ = gaussians(400)
    few, all_of_them = fit("phsic", x, y, features=60), fit("phsic", x, y, features=400)
    assert np.corrcoef(few.pmi(x, y), all_of_them.pmi(x, y))[0, 1] > 0.99


def test_labels():
    labels, values, pmi = labelled(800)
    assert spearmanr(fit("phsic", values, labels).oof_pmi_, pmi).statistic > 0.5


def test_no_nats_and_why():
    x, y, _ = gaussians(100)
    model = fit("phsic", x, y)
    for rows in ((), (x, y)):
        with pytest.raises(InputError, match="ranks pairs but has no scale of PMI"):
            model.mutual_information(*rows)
    with pytest.raises(InputError, match="has no log-loss"):
        model.score(x, y)
    assert model.mi_values_ is None
