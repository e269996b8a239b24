"""The standardiser."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.core.transforms import Standardizer

NUMERIC = torch.ones(3, dtype=torch.bool)


def draw(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scale, shift = torch.tensor([0.01, 1.0, 300.0]), torch.tensor([5.0, 0.0, -1000.0])
    return torch.randn(rows, 3, generator=generator) * scale + shift


def test_columns_come_out_standard():
    rows, standardizer = draw(500), Standardizer(1, 3)
    standardizer.fit_replica(0, rows, NUMERIC)
    out = standardizer(rows[None])[0].double().numpy()
    np.testing.assert_allclose(out.mean(0), 0.0, atol=1e-4)
    np.testing.assert_allclose(out.std(0), 1.0, atol=1e-4)
    by_hand = (rows.numpy() - rows.numpy().mean(0)) / rows.numpy().std(0)
    np.testing.assert_allclose(out, by_hand, atol=1e-3)


def test_unfitted_is_the_identity():
    rows = draw(5)[None].expand(2, 5, 3)
    torch.testing.assert_close(Standardizer(2, 3)(rows), rows)


def test_replicas_are_fitted_apart():
    standardizer = Standardizer(2, 3)
    standardizer.fit_replica(0, draw(50, seed=1), NUMERIC)
    assert torch.equal(standardizer.mean[1], torch.zeros(3))
    standardizer.fit_replica(1, draw(50, seed=2) + 7, NUMERIC)
    alone = Standardizer(1, 3)
    alone.fit_replica(0, draw(50, seed=1), NUMERIC)
    x = draw(8, seed=3)
    both = standardizer(torch.stack([x, x]))
    torch.testing.assert_close(both[0], alone(x[None])[0])
    assert not torch.allclose(both[0], both[1])
    torch.testing.assert_close(standardizer.select([1])(x[None])[0], both[1])
    torch.testing.assert_close(standardizer.select([1, 0])(torch.stack([x, x])), both.flip(0))


def test_other_columns_stay_as_they_are():
    rows = draw(50)
    rows[:, 1] = 4.0
    standardizer = Standardizer(1, 3)
    standardizer.fit_replica(0, rows, torch.tensor([True, True, False]))
    out = standardizer(rows[None])[0]
    torch.testing.assert_close(out[:, 1:], rows[:, 1:])
    assert out[:, 0].mean().abs() < 1e-3


def test_extra_dimensions():
    standardizer = Standardizer(2, 3)
    for r in range(2):
        standardizer.fit_replica(r, draw(50, seed=r), NUMERIC)
    x = torch.stack([draw(12, seed=5), draw(12, seed=6)])
    folded = standardizer(x.view(2, 4, 3, 3))
    torch.testing.assert_close(folded.view(2, 12, 3), standardizer(x))


def test_large_offset_keeps_its_spread():
    """Statistics in float64: a column at 1e6 with spread 1 has no float32 variance to speak of."""
    rows = (1e6 + torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))).float()
    standardizer = Standardizer(1, 1)
    standardizer.fit_replica(0, rows, torch.ones(1, dtype=torch.bool))
    assert standardizer.scale.item() == pytest.approx(rows.double().std(0).item(), rel=2e-3)


def test_statistics_are_saved_with_the_model():
    standardizer = Standardizer(1, 3)
    standardizer.fit_replica(0, draw(50), NUMERIC)
    again = Standardizer(1, 3)
    again.load_state_dict(standardizer.state_dict())
    torch.testing.assert_close(again(draw(4)[None]), standardizer(draw(4)[None]))


@settings(max_examples=30, deadline=None)
@given(st.floats(0.1, 100.0), st.floats(-50.0, 50.0))
def test_result_does_not_depend_on_units(scale, shift):
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain, scaled = Standardizer(1, 3).double(), Standardizer(1, 3).double()
    plain.fit_replica(0, rows, NUMERIC)
    scaled.fit_replica(0, rows * scale + shift, NUMERIC)
    torch.testing.assert_close(scaled((rows * scale + shift)[None]), plain(rows[None]))


def test_far_values_are_drawn_in_and_keep_their_order():
    standardizer = Standardizer(1, 3)
    standardizer.fit_replica(0, torch.randn(200, 3), NUMERIC)
    line = torch.linspace(-1e6, 1e6, 20001, dtype=torch.float64)[:, None].expand(-1, 3)
    out = standardizer.double()(line[None])[0]
    assert (out.diff(dim=0) > 0).all()
    assert out.abs().max() < 30
    near = line.abs().amax(1) < 5
    plain = (line - standardizer.mean) / standardizer.scale
    torch.testing.assert_close(out[near], plain[near])
