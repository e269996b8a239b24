"""The loop: its rows, clock, rate, history and evaluations, and what it notices."""

import csv
import itertools
import math
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pointdep.contrastive import load_encoder, pretrain
from pointdep.contrastive.pretraining import loop, pretrained
from pointdep.contrastive.pretraining.loop import Journal, Order
from pointdep.contrastive.pretraining.protocols import PROTOCOLS
from pointdep.contrastive.pretraining.recipes import make_recipe, mix
from pointdep.errors import FitWarning
from refusals import refused

from . import small

STEPS = 4  # an epoch of small.some_images() in batches of 16


def weights(done):
    state = done.encoder.recipe.state_dict().values()
    return torch.cat([part.double().flatten() for part in state])


def order(rows, batch_size, seeds, rank=0, ranks=1):
    place = SimpleNamespace(device=torch.device("cpu"), global_rank=rank, world_size=ranks)
    return Order(rows, batch_size, seeds, place)


def evaluated(done):
    """Which accuracies each entry of the history has."""
    return [" ".join(kind for kind in ("knn", "linear") if kind in e) for e in done.history]


def test_the_order_of_rows():
    whole = order(24, 8, (3, 4))
    for epoch in range(2):
        seen = torch.cat([whole.batch(3 * epoch + step) for step in range(3)], 1)
        assert [sorted(row) for row in seen.tolist()] == [list(range(24))] * 2
    assert order(25, 8, (0,)).steps == 3  # the incomplete batch is left out
    parts = [order(24, 8, (3, 4), rank, 2).batch(4) for rank in range(2)]
    assert torch.equal(torch.cat(parts, 1), whole.batch(4))
    for batch, ranks in ((16, 3), (2, 4)):
        refused(f"batch_size={batch} .* {ranks}", order, 64, batch, (0,), 0, ranks)
    both = order(40, 8, (1, 2))
    later = both.batch(7)
    assert torch.equal(both.batch(2), order(40, 8, (1, 2)).batch(2))
    assert torch.equal(both.batch(7), later)
    assert torch.equal(order(40, 8, (2,)).batch(7)[0], later[1])
    assert not torch.equal(later[0], later[1])
    # Neighbouring numbers and other purposes do not mix alike.
    pairs = list(itertools.product(range(20), repeat=2))
    mixed = {mix(name, *pair) for name in ("order", "step") for pair in pairs}
    mixed |= {mix("step", *pair, rank) for pair in pairs for rank in range(2)}
    assert len(mixed) == 1600
    assert max(mixed) < 2**63


class TestJournal:
    @staticmethod
    def entry(step, **values):
        return {"epoch": step / 4, "step": step, "seconds": 1.0 * step, "rate": 0.1, **values}

    def test_last_values_and_one_line_per_entry_and_replica(self, tmp_path):
        journal = Journal(["a", "b"], tmp_path)
        journal.add(self.entry(4, loss=[1.0, 2.0], knn=[0.5, 0.6]))
        journal.add(self.entry(8, loss=[0.5, math.nan]))
        assert (journal.last("loss"), journal.last("knn")) == ([0.5, None], [0.5, 0.6])
        assert journal.last("linear") == [None, None]
        journal.close()
        with (tmp_path / "history.csv").open() as file:
            lines = list(csv.DictReader(file))
        found = [[line[key] for key in ("run", "step", "loss", "knn")] for line in lines]
        assert found[:2] == [["a", "4", "1.0", "0.5"], ["b", "4", "2.0", "0.6"]]
        assert found[2:] == [["a", "8", "0.5", ""], ["b", "8", "", ""]]

    def test_tensorboard_reads_it_without_the_steps_of_a_killed_run(self, tmp_path):
        reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        killed = Journal(["a"], tmp_path)
        for step in (4, 8, 12):
            killed.add(self.entry(step, loss=[-1.0]))
        time.sleep(1.1)  # TensorBoard orders the files of two processes by seconds in their names
        resumed = Journal(["a"], tmp_path)
        resumed.entries = killed.entries[:1]
        for step in (8, 12):
            resumed.add(self.entry(step, loss=[2.0], knn=[0.5]))
        resumed.close()
        events = reader.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
        found = [(event.step, event.value) for event in events.Scalars("loss/a")]
        assert found == [(4, -1.0), (8, 2.0), (12, 2.0)]
        assert [event.value for event in events.Scalars("knn/a")] == [0.5, 0.5]


def simclr_rate(done):
    """Up in a line over a tenth of the run, then down along half a cosine."""
    warm = 0.1
    return done / warm if done < warm else (1 + math.cos(math.pi * (done - warm) / (1 - warm))) / 2


@pytest.fixture
def clock(monkeypatch):
    """Stands in for `time`: a step takes 7 s, an evaluation 1000 s, writing 100 s."""
    told = SimpleNamespace(now=50.0, monotonic=lambda: told.now)
    monkeypatch.setattr(loop, "time", told)

    def slow_down(place, name, seconds):
        original = getattr(place, name)

        def slow(*args, **options):
            told.now += seconds
            return original(*args, **options)

        monkeypatch.setattr(place, name, slow)

    slow_down(loop.Training, "train_step", 7.0)
    slow_down(pretrained, "knn_accuracy", 1000.0)
    slow_down(loop, "write_checkpoint", 100.0)
    return told


class TestMinutes:
    def test_the_run_ends_on_time_or_with_its_epochs(self, clock, tmp_path):
        done = small.train("simclr", tmp_path, epochs=50, minutes=1, evaluate_every=1)
        # 8 steps take 56 s, the ninth is over the minute; evaluations and writing do not count.
        assert [entry["step"] for entry in done.history] == [4, 8, 9]
        assert [entry["seconds"] for entry in done.history] == [28.0, 56.0, 63.0]
        outcome = done.outcomes[0]
        assert done.history[-1]["epoch"] == outcome.epochs == 9 / STEPS
        assert (outcome.seconds, outcome.loss) == (63.0, done.history[-1]["loss"][0])
        assert done.wall_seconds == clock.now - 50.0 > 63.0 + 3 * 1000.0
        assert evaluated(done) == ["knn", "knn", "knn linear"]
        base = PROTOCOLS["simclr"].learning_rate * 16 / 512
        by_hand = [base * simclr_rate(7 * (step - 1) / 60) for step in (4, 8, 9)]
        assert [entry["rate"] for entry in done.history] == pytest.approx(by_hand)
        assert done.history[-1]["rate"] < 0.02 * base
        timed = small.train("shallow", epochs=2, minutes=5)
        assert [entry["step"] for entry in timed.history] == [STEPS, 2 * STEPS]
        assert torch.equal(weights(timed), weights(small.train("shallow", epochs=2)))

    def test_the_clock_goes_on_after_a_kill(self, clock, tmp_path, monkeypatch):
        def killed(self, shown, original=loop.Training._end_epoch):
            original(self, shown)
            if self.step == 4:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(loop, "_SHARE_OF_WRITING", 1e9)
            patch.setattr(loop.Training, "_end_epoch", killed)
            with pytest.raises(KeyboardInterrupt):
                small.train("shallow", tmp_path, epochs=50, minutes=1)
        done = small.train("shallow", tmp_path, epochs=50, minutes=1)
        assert [entry["step"] for entry in done.history] == [4, 8, 9]
        assert done.history[-1]["seconds"] == 63.0


def test_rates():
    """AMDIM's over 300 epochs: a rise over 500 steps, a fifth from epoch 250, again from 280."""
    chosen = map(small.settings, small.SMALL)
    shallow, amdim, simclr = (make_recipe(settings, (3, 32, 32), 4) for settings in chosen)
    assert {shallow.rate(done, 3) for done in (0.0, 0.5, 1.0)} == {1.0}
    for done in (0.001, 0.02, 0.05, 0.3, 0.9, 1.0):
        assert simclr.rate(done, 7) == pytest.approx(simclr_rate(done), abs=1e-12)
    found = [amdim.rate(e / 300, 9999) for e in (0, 249, 250, 279, 280, 299)]
    assert found == pytest.approx([1, 1, 0.2, 0.2, 0.04, 0.04])
    assert [amdim.rate(0, step) for step in (0, 249, 499, 500)] == [0.002, 0.5, 1, 1]


class TestEvaluations:
    @pytest.mark.parametrize("model", small.SMALL)
    def test_evaluating_changes_nothing(self, model, tmp_path):
        """Neither the weights nor the state of the global generator."""
        torch.manual_seed(3)
        expected = torch.rand(4)
        torch.manual_seed(3)
        looked, unlooked = small.train(model, tmp_path, evaluate_every=2), small.train(model)
        load_encoder(tmp_path / "encoder", "cpu")
        assert torch.equal(torch.rand(4), expected)
        assert torch.equal(weights(looked), weights(unlooked))
        assert evaluated(looked) == ["", "knn", "knn linear"]
        assert evaluated(unlooked) == ["", "", "knn linear"]
        assert looked.outcomes[0].linear == unlooked.outcomes[0].linear

    def test_counted_in_iterations(self):
        looked = small.train("shallow", epochs=None, iterations=10, evaluate_every=3)
        assert [entry["step"] for entry in looked.history] == [3, 6, 9, 10]
        assert [entry["epoch"] for entry in looked.history] == [0.75, 1.5, 2.25, 2.5]
        assert evaluated(looked) == ["knn"] * 3 + ["knn linear"]
        unlooked = small.train("shallow", epochs=None, iterations=10)
        assert [entry["step"] for entry in unlooked.history] == [4, 8, 10]
        assert torch.equal(weights(looked), weights(unlooked))
        whole = small.train("shallow", epochs=None, iterations=3 * STEPS)
        assert torch.equal(weights(whole), weights(small.train("shallow", epochs=3)))

    def test_the_linear_monitor_sees_all_images_and_the_loss_is_a_mean(self, monkeypatch):
        for name, rows in (("_MONITOR_TRAIN", 10), ("_MONITOR_TEST", 5)):
            monkeypatch.setattr(pretrained, name, rows)
        counted = {"epochs": None, "learning_rate": 0.01}
        looked = small.train("shallow", **counted, iterations=9, evaluate_every=3, monitor="linear")
        assert evaluated(looked) == ["linear", "linear", "knn linear"]
        for entry in looked.history[:2]:
            ended = small.train("shallow", **counted, iterations=entry["step"])
            assert entry["linear"] == [outcome.linear for outcome in ended.outcomes]
        seen, step = [], loop.Training.train_step
        monkeypatch.setattr(
            loop.Training, "train_step", lambda self: seen.append(step(self)) or seen[-1]
        )
        done, means = small.train("shallow"), torch.stack(seen).view(3, STEPS, 2).mean(1)
        assert torch.allclose(torch.tensor([entry["loss"] for entry in done.history]), means)


@pytest.mark.parametrize("model", small.SMALL)
@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_black_images_are_noticed(model):
    """Elsewhere no warning is raised of images that differ: it would be an error."""
    images = small.images_for(model)
    parts = {part: torch.zeros_like(getattr(images, part)) for part in ("train", "test")}
    with pytest.warns(FitWarning, match="epoch 1: collapsed") as warned:
        done = pretrain(replace(images, **parts), small.settings(model), device="cpu")
    assert sum("collapsed" in str(warning.message) for warning in warned) == 1  # said once
    assert done.outcomes[0].linear == 0.25  # chance among four classes


@pytest.mark.parametrize("model", small.SMALL)
def test_half_precision_on_the_cpu(model):
    one_step = {"epochs": 1, "batch_size": 64}  # later ones of networks so small go apart at once
    half, full = (small.train(model, precision=kind, **one_step) for kind in ("bf16", "32"))
    assert half.outcomes[0].loss == pytest.approx(full.outcomes[0].loss, rel=0.02, abs=0.02)
    assert not torch.equal(weights(half), weights(full))
    assert all(p.dtype == torch.float32 for p in half.encoder.recipe.parameters())


def test_refused(tmp_path):
    refused("simclr trains one objective and seed", small.train, "simclr", seeds=(0, 1))
    images, chosen = small.some_images(), small.settings("shallow")
    one = replace(images, train_labels=torch.zeros_like(images.train_labels))
    refused("colours are of one class", pretrain, one, chosen, device="cpu")
    run = tmp_path / "run"
    refused(r"batch_size=65 .* 64 training images", small.train, "shallow", run, batch_size=65)
    assert not run.exists()
    refused("images must be an ImageSet", pretrain, images.train, chosen)
    refused("checkpoint_every=nan", pretrain, images, chosen, checkpoint_every=math.nan)
