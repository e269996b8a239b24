"""Every method of Table 1 on Gaussians of known MI, at the size of the benchmark. Takes minutes."""

import numpy as np
import pytest

from pointdep import PointwiseDependency
from pointdep.core.methods import PAPER_METHODS
from pointdep.data.tasks import correlated_gaussians
from pointdep.errors import FitWarning
from refusals import quietly

TOLERANCE = dict.fromkeys(PAPER_METHODS, 0.3) | {
    **dict.fromkeys(("nwj", "dv", "dm1"), 0.5),
    **dict.fromkeys(("drf", "cpc"), 0.6),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", PAPER_METHODS)
def test_out_of_fold_mi_of_twenty_dimensional_gaussians(method: str) -> None:
    task = correlated_gaussians(10_000, 20, 2.0, seed=1)
    model = PointwiseDependency(method=method, random_state=1, progress=False)
    with quietly(FitWarning):
        model.fit(task.x, task.y)
    assert abs(model.mutual_information().nats - 2.0) <= TOLERANCE[method]
    assert np.corrcoef(model.oof_pmi_, task.pmi)[0, 1] > 0.8
