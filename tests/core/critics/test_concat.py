"""The concat critic against a plain perceptron on [x, y]; its pass over cells against autograd."""

import math
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from pointdep.core.critics import ACTIVATIONS, concat
from pointdep.core.critics.concat import ConcatCritic, one_part_a_thread, pair_scores

from .kinds import draw

MODULES = {"silu": nn.SiLU, "relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "elu": nn.ELU}


def perceptron(critic, replica, activation):
    """The replica as an nn.Sequential with the same weights."""
    first = torch.cat([critic.x_half.weight[replica], critic.y_half.weight[replica]], 0)
    weights = [(first, critic.x_half.bias[replica])]
    weights += [(layer.weight[replica], layer.bias[replica]) for layer in critic.rest.layers]
    layers = []
    for weight, bias in weights:
        linear = nn.Linear(*weight.shape, dtype=torch.float64)
        linear.weight.data, linear.bias.data = weight.detach().T, bias.detach()[0]
        layers += [linear, MODULES[activation]()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(7,), (9, 6), (5, 8, 4)])
def test_equals_a_perceptron_on_the_concatenation(activation, hidden):
    critic = ConcatCritic(2, 3, 5, hidden=hidden, activation=activation).double()
    critic.reset([torch.Generator().manual_seed(seed) for seed in (0, 1)])
    x, y = draw(2, 6, 3, seed=2), draw(2, 4, 5, seed=3)
    matrix, pairs = critic.matrix(x, y), critic.pairs(x[:, :4], y)
    for r in range(2):
        plain = perceptron(critic, r, activation)
        assert len(plain) == 2 * len(hidden) + 1
        torch.testing.assert_close(pairs[r], plain(torch.cat([x[r, :4], y[r]], -1))[:, 0])
        rows = torch.cat([x[r].repeat_interleave(4, 0), y[r].repeat(6, 1)], -1)
        torch.testing.assert_close(matrix[r], plain(rows).view(6, 4))


def test_first_layer_is_scaled_by_both_inputs():
    """Each half alone would start wider than the layer on [x, y] that it is part of."""
    critic = ConcatCritic(1, 40, 60, hidden=(200,))
    critic.reset([torch.Generator().manual_seed(7)])
    for half in (critic.x_half, critic.y_half):
        assert 0.099 < half.weight.abs().max() <= 0.1
    assert critic.y_half.bias is None


# Replicas, rows of x, rows of y, units of the first layer and of the second.
SHAPES = [(1, 4, 4, 5, 3), (3, 6, 6, 4, 7), (2, 5, 8, 6, 6), (4, 7, 2, 3, 5), (2, 1, 1, 1, 1)]
NAMES = ("hx", "hy", "weight", "bias", "last weight", "last bias")


def make(shape, dtype=torch.float64):
    """hx, hy and the four weights, all different in every replica."""
    replicas, rows, columns, hidden, outputs = shape
    hx_hy = (rows, hidden), (columns, hidden)
    shapes = (*hx_hy, (hidden, outputs), (1, outputs), (outputs, 1), (1, 1))
    drawn = [draw(replicas, *size, seed=number) for number, size in enumerate(shapes)]
    drawn[2] /= math.sqrt(hidden)
    return [tensor.to(dtype).requires_grad_() for tensor in drawn]


def plain(hx, hy, weight, bias, last_weight, last_bias):
    """Scores by one perceptron a replica, a cell at a time in the rows of one matrix."""
    scores = []
    for r in range(len(hx)):
        second = torch.relu(torch.relu(hx[r][:, None, :] + hy[r][None, :, :]) @ weight[r] + bias[r])
        scores.append((second @ last_weight[r] + last_bias[r]).squeeze(-1))
    return torch.stack(scores)


def with_gradients(function, tensors, grad):
    """The scores, and the gradients of the six inputs, of sum(scores * grad)."""
    scores = function(*tensors)
    return scores.detach(), torch.autograd.grad(scores, tensors, grad)


def both(tensors, dtype=torch.float64):
    """Ours and the plain one: scores and gradients."""
    hx, hy, *_ = tensors
    grad = draw(len(hx), hx.shape[1], hy.shape[1], seed=9).to(hx.dtype)
    ours = with_gradients(lambda *t: pair_scores(dtype, *t), tensors, grad)
    return ours, with_gradients(plain, tensors, grad)


def off(found, wanted):
    """The distance, in units of the wanted one's norm."""
    return ((found - wanted).norm() / wanted.norm()).item()


class TestAgainstAutograd:
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_scores_and_all_gradients(self, shape, monkeypatch):
        tensors = make(shape)
        (scores, grads), (wanted_scores, wanted_grads) = both(tensors)
        assert scores.shape == shape[:3]
        torch.testing.assert_close(scores, wanted_scores, rtol=1e-10, atol=1e-10)
        for name, tensor, found, wanted in zip(NAMES, tensors, grads, wanted_grads, strict=True):
            assert found.shape == tensor.shape
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10, msg=name)
        # All replicas at once: the way of a GPU, less its compiler.
        monkeypatch.setattr(concat, "_compiled", lambda function: function)
        grad = draw(*shape[:3], seed=9)
        found = with_gradients(lambda *t: concat._AllAtOnce.apply(torch.float64, *t), tensors, grad)
        wanted = wanted_scores, wanted_grads
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize("few", [1, 2, 3, 5, 9])
    def test_a_few_replicas_after_another(self, few, monkeypatch):
        monkeypatch.setattr(concat, "_CACHED", few * 4 * 6 * 3)
        spy = Mock(wraps=concat._forward)
        monkeypatch.setattr(concat, "_forward", spy)
        found, wanted = both(make((5, 4, 6, 3, 7)))
        parts = [len(call.args[1]) for call in spy.call_args_list]
        assert parts == [min(few, 5 - first) for first in range(0, 5, few)]
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)

    def test_what_is_not_contiguous_and_zero_at_the_kinks(self):
        tensors = [t.detach().mT.contiguous().mT.requires_grad_() for t in make((2, 6, 5, 4, 3))]
        assert not any(t.is_contiguous() for t in tensors[:3])
        grad = draw(2, 5, 6, seed=9).mT
        found = with_gradients(lambda *t: pair_scores(torch.float64, *t), tensors, grad)
        wanted = with_gradients(plain, tensors, grad)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
        # As autograd has it: a unit at exactly zero learns nothing.
        tensors = [torch.zeros_like(t).requires_grad_() for t in make((1, 3, 3, 2, 2))]
        (_, grads), (_, wanted) = both(tensors)
        torch.testing.assert_close(grads, wanted, rtol=0, atol=0)
        assert [bool(g.any()) for g in grads] == [False] * 5 + [True]

    def test_bf16_is_roughly_right(self):
        tensors = make((2, 24, 24, 64, 64), torch.float32)
        (scores, grads), (wanted_scores, wanted_grads) = both(tensors, torch.bfloat16)
        assert scores.dtype == torch.float32
        assert 0 < off(scores, wanted_scores) < 1e-2
        for name, found, wanted in zip(NAMES, grads, wanted_grads, strict=True):
            assert found.dtype == torch.float32
            assert off(found, wanted) < 8e-2, name
        # The last bias' gradient is a sum of what came in; the others come of products.
        assert off(grads[-1], wanted_grads[-1]) < 1e-5
        assert min(off(*pair) for pair in zip(grads[:5], wanted_grads[:5], strict=True)) > 1e-4

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("number", range(6), ids=NAMES)
    def test_one_that_is_not_a_number_leaves_the_others_alone(self, number, dtype):
        tensors = make((3, 5, 5, 4, 6), torch.float32 if dtype != torch.float64 else dtype)
        (scores, grads), _ = both(tensors, dtype)
        tensors[number].data[1] = torch.nan
        (spoilt_scores, spoilt_grads), _ = both(tensors, dtype)
        assert spoilt_scores[1].isnan().all()
        for found, wanted in ((spoilt_scores, scores), *zip(spoilt_grads, grads, strict=True)):
            assert torch.equal(found[[0, 2]], wanted[[0, 2]])


class TestInTheCritic:
    def make(self, **options):
        critic = ConcatCritic(2, 3, 5, **{"hidden": (6, 4), "activation": "relu", **options})
        critic.reset([torch.Generator().manual_seed(seed) for seed in (0, 1)])
        return critic.double()

    def test_the_same_as_without(self):
        critic, x, y = self.make(), draw(2, 6, 3, seed=1), draw(2, 4, 5, seed=2)
        grad, wanted = draw(2, 6, 4, seed=3), critic.matrix(x, y)
        wanted_grads = torch.autograd.grad(wanted, tuple(critic.parameters()), grad)
        critic.pair_dtype = torch.float64
        found = critic.matrix(x, y)
        assert type(found.grad_fn) is not type(wanted.grad_fn)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        grads = torch.autograd.grad(found, tuple(critic.parameters()), grad)
        torch.testing.assert_close(grads, wanted_grads, rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize(
        "options", [{"hidden": (6,)}, {"hidden": (6, 4, 3)}, {"activation": "silu"}], ids=str
    )
    def test_other_networks_go_the_plain_way(self, options):
        critic, x, y = self.make(**options), draw(2, 6, 3, seed=1), draw(2, 4, 5, seed=2)
        wanted = critic.matrix(x, y)
        critic.pair_dtype = torch.bfloat16
        assert not critic.fusable
        assert torch.equal(critic.matrix(x, y), wanted)


class TestOnePartAThread:
    @pytest.fixture
    def threads(self):
        before = torch.get_num_threads()
        yield torch.set_num_threads
        torch.set_num_threads(before)

    @pytest.mark.parametrize("few", [1, 2])
    @pytest.mark.parametrize("count", [1, 3])
    def test_as_without(self, few, count, threads, monkeypatch):
        monkeypatch.setattr(concat, "_CACHED", few * 6 * 4 * 3)
        tensors = make((5, 6, 4, 3, 7))
        threads(1)
        (scores, grads), _ = both(tensors)
        threads(count)
        with one_part_a_thread():
            (found_scores, found_grads), _ = both(tensors)
        assert torch.equal(scores, found_scores)
        assert all(map(torch.equal, grads, found_grads))

    def test_each_has_one_thread_and_the_number_is_as_before(self, threads, monkeypatch):
        threads(3)
        seen, original = [], concat._forward

        def forward(*part):
            seen.append((torch.get_num_threads(), torch.is_grad_enabled()))
            return original(*part)

        monkeypatch.setattr(concat, "_forward", forward)
        monkeypatch.setattr(concat, "_CACHED", 1)
        with one_part_a_thread():
            assert torch.get_num_threads() == 1
            pair_scores(torch.float64, *make((4, 5, 5, 3, 3)))
        assert (seen, torch.get_num_threads()) == ([(1, False)] * 4, 3)
        pair_scores(torch.float64, *make((1, 5, 5, 3, 3)))
        assert seen[4:] == [(3, False)]
