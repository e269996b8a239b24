"""Which rows a step sees."""

import pytest
import torch

from pointdep.contrastive.pretraining.loop import Order, mix
from pointdep.errors import InputError

CPU = torch.device("cpu")


def test_an_epoch_sees_every_row_once():
    order = Order(24, 8, (3, 4), CPU)
    for epoch in range(2):
        seen = torch.cat([order.batch(3 * epoch + step) for step in range(3)], 1)
        assert [sorted(row) for row in seen.tolist()] == [list(range(24))] * 2


def test_the_incomplete_batch_is_left_out():
    assert Order(25, 8, (0,), CPU).steps == 3


def test_ranks_share_a_batch():
    order = Order(24, 8, (5,), CPU)
    parts = [order.batch(4, rank, 2) for rank in range(2)]
    assert torch.equal(torch.cat(parts, 1), Order(24, 8, (5,), CPU).batch(4))


def test_the_order_is_a_function_of_seed_and_step():
    order = Order(40, 8, (1, 2), CPU)
    later = order.batch(7)
    assert torch.equal(order.batch(2), Order(40, 8, (1, 2), CPU).batch(2))
    assert torch.equal(order.batch(7), later)
    assert torch.equal(Order(40, 8, (2,), CPU).batch(7)[0], later[1])
    assert not torch.equal(later[0], later[1])


def test_a_batch_larger_than_the_data_is_an_error():
    with pytest.raises(InputError, match="more than the 5 training images"):
        Order(5, 6, (0,), CPU)


def test_neighbouring_numbers_and_other_purposes_do_not_mix_alike():
    pairs = [(seed, step) for seed in range(20) for step in range(20)]
    mixed = {mix(name, *pair) for name in ("order", "step") for pair in pairs}
    mixed |= {mix("step", *pair, rank) for pair in pairs for rank in range(2)}
    assert len(mixed) == 1600
    assert max(mixed) < 2**63
