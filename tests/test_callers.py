"""What a mistake or a warning says to the line that made it."""

import warnings

import numpy as np
import pytest

from pointdep import PointwiseDependency, audit
from pointdep.errors import DataWarning, FitWarning, InputError

random = np.random.default_rng(0)
X = random.normal(size=(60, 4))
Y = X[:, :3] + 0.5 * random.normal(size=(60, 3))
QUICK = {"hidden": (4,), "folds": 2, "max_epochs": 1, "random_state": 0, "progress": False}


@pytest.fixture(scope="module")
def model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PointwiseDependency(**QUICK).fit(X, Y)


@pytest.mark.parametrize(
    ("call", "category"),
    [
        (lambda _: PointwiseDependency(**QUICK).fit(X, Y), FitWarning),
        (lambda _: audit(X, random.permutation(Y), model=PointwiseDependency(**QUICK)), None),
        (lambda model: model.pmi(100 * X, Y), DataWarning),
    ],
)
def test_warnings_point_at_the_line_of_the_user(model, call, category):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(model)
    ours = {one.category for one in caught if issubclass(one.category, UserWarning)}
    assert ours == ({category} if category else {DataWarning, FitWarning})
    assert {one.filename for one in caught if one.category in ours} == {__file__}


@pytest.mark.parametrize("ask", ["pmi", "pd", "pmi_matrix", "retrieve"])
def test_one_row_given_as_a_vector(model, ask):
    with pytest.raises(InputError, match=r"X has 1 features.*: give one row as X\[:1\], not X\[0"):
        getattr(model, ask)(X[0], Y[0])
    with pytest.raises(InputError, match=r"expecting 4 features as input$"):
        getattr(model, ask)(X[:, :2], Y)


def test_an_option_of_the_model_given_to_audit():
    with pytest.raises(TypeError, match=r"no option 'hidden': give model=.*\(hidden=\(16,\)\)$"):
        audit(X, Y, hidden=(16,))
    with pytest.raises(TypeError, match=r"audit has no option 'colour'$"):
        audit(X, Y, colour=1)
