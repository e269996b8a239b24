"""The engine's state, to disk and back."""

import dataclasses
from contextlib import contextmanager
from itertools import chain

import pytest
import torch

from pointdep.data import atomic
from pointdep.errors import InputError, ModelFileError
from pointdep.fitting.state import Checkpoint, TrainingState, load_state, save_state
from refusals import refused


def some_state():
    torch.manual_seed(0)
    values, buffers = torch.randn(2, 5), [[torch.randn(3), torch.tensor(7)] for _ in range(2)]
    state = TrainingState.start(values, buffers)
    for name in ("average", "first", "second", "best"):
        setattr(state, name, torch.randn(2, 5))
    state.best_value = torch.tensor([0.5, -torch.inf])
    state.moving = torch.tensor([torch.nan, 1.5])
    state.epoch, state.step = 4, 80
    state.active, state.bad, state.best_epoch, state.diverged = [1], [2, 0], [3, 4], [0]
    state.history = [{"train": [0.1, None], "stop": [None, 1e-17]}]
    state.best_buffers = [[torch.randn(3), torch.tensor(9)] for _ in range(2)]
    return state


def like():
    return TrainingState.start(torch.zeros(2, 5), [[torch.zeros(3), torch.tensor(0)]] * 2)


def test_round_trip(tmp_path):
    state, path = some_state(), tmp_path / "a"
    save_state(Checkpoint(path, "this fit"), state)
    drawn, found = torch.rand(3), load_state(Checkpoint(path, "this fit"), like())
    assert torch.equal(torch.rand(3), drawn)  # the generator goes on where it was
    for field in dataclasses.fields(TrainingState):
        kept, got = getattr(state, field.name), getattr(found, field.name)
        if isinstance(kept, torch.Tensor):
            torch.testing.assert_close(got, kept, rtol=0, atol=0, equal_nan=True)
        elif field.name.endswith("buffers"):
            for a, b in zip(chain(*kept), chain(*got), strict=True):
                assert torch.equal(a, b)
                assert a.dtype == b.dtype
        else:
            assert kept == got


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_the_old_checkpoint(error, tmp_path, monkeypatch):
    path = tmp_path / "a"
    save_state(Checkpoint(path, "this fit"), some_state())
    before = path.read_bytes()

    @contextmanager
    def half(place):
        with atomic.whole_file(place) as file:
            file.write(b"half")
            raise error
            yield file

    monkeypatch.setattr("pointdep.fitting.state.whole_file", half)
    later = some_state()
    later.epoch = 5
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else InputError):
        save_state(Checkpoint(path, "this fit"), later)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])


def test_why_it_is_of_another_fit(tmp_path):
    settings, path = {"max_epochs": 3, "stored": [5, 1], "processes": 3}, tmp_path / "state"
    save_state(Checkpoint(path, "this fit", settings), some_state())
    for changed, message in (
        ({"processes": 2}, "written by 3 .* need as many to go on; here are 2: start 3, or delete"),
        ({"max_epochs": 9}, "a fit with max_epochs=3, not 9: give the same again"),
        ({"stored": [7, 1]}, "of other data or other settings"),
    ):
        refused(message, load_state, Checkpoint(path, "that fit", {**settings, **changed}), like())


def test_no_flipped_bit_is_gone_on_from(tmp_path):
    """One bit anywhere in the file: refused, as its digest is of all that it says."""
    path = tmp_path / "state"
    save_state(Checkpoint(path, "this fit"), some_state())
    content = path.read_bytes()
    for bit in range(1, 8 * len(content), 8 * len(content) // 150):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises((ModelFileError, InputError)) as caught:
            load_state(Checkpoint(path, "this fit"), like())
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("values", torch.zeros(3, 5)), ("active", [2]), ("bad", [0]), ("epoch", "4"), ("best", None)],
)
def test_a_checkpoint_of_other_weights(name, value, tmp_path):
    state, path = some_state(), tmp_path / "state"
    setattr(state, name, value)
    save_state(Checkpoint(path, "this fit"), state)
    with pytest.raises(ModelFileError, match=r"holds something else .*: delete it to start over"):
        load_state(Checkpoint(path, "this fit"), like())
