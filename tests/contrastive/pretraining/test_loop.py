"""The loop: its clock, its rate, its looks at the features, and what it notices."""

import math
from dataclasses import replace

import pytest
import torch

from pointdep.contrastive import load_encoder
from pointdep.contrastive.pretraining import evaluate, loop
from pointdep.contrastive.pretraining.pretrained import pretrain
from pointdep.contrastive.pretraining.protocols import PROTOCOLS
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.errors import FitWarning, InputError

from . import small

STEPS = 4  # an epoch of small.some_images() in batches of 16


class Clock:
    """Stands in for `time`: a step takes 7 s, a look at the features 1000 s, writing 100 s."""

    def __init__(self, monkeypatch):
        self.now = 50.0
        monkeypatch.setattr(loop, "time", self)
        for place, name, seconds in (
            (loop.Training, "train_step", 7.0),
            (evaluate, "knn_accuracy", 1000.0),
            (loop, "write_snapshot", 100.0),
        ):
            monkeypatch.setattr(place, name, self.taking(seconds, getattr(place, name)))

    def monotonic(self):
        return self.now

    def taking(self, seconds, function):
        def slow(*args, **options):
            self.now += seconds
            return function(*args, **options)

        return slow


def weights(done):
    return torch.cat(
        [part.double().flatten() for part in done.encoder.recipe.state_dict().values()]
    )


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class TestMinutes:
    def test_the_run_ends_on_time_with_its_rate_brought_down(self, clock, tmp_path):
        done = small.train("simclr", tmp_path, epochs=50, minutes=1, evaluate_every=1)
        # 8 steps take 56 s, the ninth is over the minute; looks and checkpoints do not count.
        assert [entry["step"] for entry in done.history] == [4, 8, 9]
        assert [entry["seconds"] for entry in done.history] == [28.0, 56.0, 63.0]
        assert done.history[-1]["epoch"] == done.outcomes[0].epochs == 9 / STEPS
        assert done.outcomes[0].seconds == 63.0
        assert done.wall_seconds == clock.now - 50.0 > 63.0 + 3 * 1000.0
        assert done.outcomes[0].loss == done.history[-1]["loss"][0]
        assert [sorted(entry.keys() & {"knn", "linear"}) for entry in done.history] == [
            ["knn"], ["knn"], ["knn", "linear"],
        ]  # fmt: skip
        base = PROTOCOLS["simclr"].learning_rate * 16 / 512
        by_hand = [simclr_rate(7 * (step - 1) / 60) for step in (4, 8, 9)]
        assert [entry["rate"] for entry in done.history] == pytest.approx(
            [base * factor for factor in by_hand]
        )
        assert done.history[-1]["rate"] < 0.02 * base

    def test_the_epochs_may_end_first(self, clock):
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


def simclr_rate(done):
    """Up in a line over a tenth of the run, then down along half a cosine."""
    warm = 0.1
    return done / warm if done < warm else (1 + math.cos(math.pi * (done - warm) / (1 - warm))) / 2


class TestRates:
    def test_simclr(self):
        recipe = make_recipe(small.settings("simclr"), (3, 32, 32), 4)
        for done in (0.001, 0.02, 0.05, 0.3, 0.9, 1.0):
            assert recipe.rate(done, 7) == pytest.approx(simclr_rate(done), abs=1e-12)

    def test_amdim(self):
        """300 epochs: 500 steps of warm-up, a fifth from epoch 250, a twenty-fifth from 280."""
        recipe = make_recipe(small.settings("amdim"), (3, 32, 32), 4)
        found = [recipe.rate(e / 300, 9999) for e in (0, 249, 250, 279, 280, 299)]
        assert found == pytest.approx([1, 1, 0.2, 0.2, 0.04, 0.04])
        assert [recipe.rate(0, step) for step in (0, 249, 499, 500)] == [0.002, 0.5, 1, 1]

    def test_shallow(self):
        recipe = make_recipe(small.settings("shallow"), (3, 32, 32), 4)
        assert {recipe.rate(done, 3) for done in (0.0, 0.5, 1.0)} == {1.0}


class TestLooks:
    @pytest.mark.parametrize("model", small.SMALL)
    def test_looking_changes_nothing(self, model):
        looked, unlooked = small.train(model, evaluate_every=2), small.train(model)
        assert torch.equal(weights(looked), weights(unlooked))
        assert [("knn" in e, "linear" in e) for e in looked.history] == [
            (False, False), (True, False), (True, True),
        ]  # fmt: skip
        assert [("knn" in e, "linear" in e) for e in unlooked.history] == [
            (False, False), (False, False), (True, True),
        ]  # fmt: skip
        assert looked.outcomes[0].linear == unlooked.outcomes[0].linear

    def test_counted_in_iterations(self):
        """Looks and entries every three steps, where an epoch has four, and at the end."""
        looked = small.train("shallow", epochs=None, iterations=10, evaluate_every=3)
        assert [entry["step"] for entry in looked.history] == [3, 6, 9, 10]
        assert [entry["epoch"] for entry in looked.history] == [0.75, 1.5, 2.25, 2.5]
        assert [("knn" in e, "linear" in e) for e in looked.history] == [(True, False)] * 3 + [
            (True, True)
        ]
        unlooked = small.train("shallow", epochs=None, iterations=10)
        assert [entry["step"] for entry in unlooked.history] == [4, 8, 10]
        assert torch.equal(weights(looked), weights(unlooked))
        whole = small.train("shallow", epochs=None, iterations=3 * STEPS)
        assert torch.equal(weights(whole), weights(small.train("shallow", epochs=3)))

    def test_the_linear_monitor_sees_all_images(self, monkeypatch):
        """At each look what a run that ends there finds at its end."""
        monkeypatch.setattr(evaluate, "_MONITOR_TRAIN", 10)
        monkeypatch.setattr(evaluate, "_MONITOR_TEST", 5)
        counted = {"epochs": None, "learning_rate": 0.01}
        looked = small.train("shallow", **counted, iterations=9, evaluate_every=3, monitor="linear")
        assert [("knn" in e, "linear" in e) for e in looked.history] == [
            (False, True), (False, True), (True, True),
        ]  # fmt: skip
        for entry in looked.history[:2]:
            ended = small.train("shallow", **counted, iterations=entry["step"])
            assert entry["linear"] == [outcome.linear for outcome in ended.outcomes]

    @pytest.mark.parametrize("model", small.SMALL)
    def test_the_global_generator_is_left_alone(self, model, tmp_path):
        torch.manual_seed(3)
        expected = torch.rand(4)
        torch.manual_seed(3)
        small.train(model, tmp_path, epochs=1)
        load_encoder(tmp_path / "encoder", "cpu")
        assert torch.equal(torch.rand(4), expected)

    def test_loss_of_an_epoch_is_the_mean_of_its_steps(self, monkeypatch):
        seen = []
        step = loop.Training.train_step

        def noting(self):
            seen.append(step(self))
            return seen[-1]

        monkeypatch.setattr(loop.Training, "train_step", noting)
        done = small.train("shallow")
        means = torch.stack(seen).view(3, STEPS, 2).mean(1)
        assert torch.allclose(torch.tensor([entry["loss"] for entry in done.history]), means)


class TestCollapse:
    @pytest.mark.parametrize("model", small.SMALL)
    @pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
    def test_black_images_are_noticed(self, model):
        images = small.images_for(model)
        black = replace(
            images, train=torch.zeros_like(images.train), test=torch.zeros_like(images.test)
        )
        with pytest.warns(FitWarning, match="epoch 1: collapsed") as warned:
            done = pretrain(black, small.settings(model), device="cpu")
        assert sum("collapsed" in str(warning.message) for warning in warned) == 1  # said once
        assert done.outcomes[0].linear == 0.25  # chance among four classes

    @pytest.mark.parametrize("model", small.SMALL)
    def test_images_that_differ_are_not(self, model):
        small.train(model)  # a warning would be an error


@pytest.mark.parametrize("model", small.SMALL)
def test_half_precision_on_the_cpu(model):
    half, full = (
        small.train(model, precision=precision, epochs=1, batch_size=64)
        for precision in ("bf16", "32")
    )
    # One step: later ones of networks so small go apart at once.
    assert half.outcomes[0].loss == pytest.approx(full.outcomes[0].loss, rel=0.02, abs=0.02)
    assert not torch.equal(weights(half), weights(full))
    assert all(p.dtype == torch.float32 for p in half.encoder.recipe.parameters())


class TestRefused:
    def test_several_runs_of_a_model_that_trains_one(self):
        with pytest.raises(InputError, match="simclr trains one objective and seed a run"):
            small.train("simclr", seeds=(0, 1))

    def test_one_class(self):
        images = small.some_images()
        one = replace(images, train_labels=torch.zeros_like(images.train_labels))
        with pytest.raises(InputError, match="colours are of one class"):
            pretrain(one, small.settings("shallow"), device="cpu")

    def test_a_batch_larger_than_the_data_leaves_no_folder(self, tmp_path):
        with pytest.raises(InputError, match="batch_size=65 is more than the 64 training images"):
            small.train("shallow", tmp_path / "run", batch_size=65)
        assert not (tmp_path / "run").exists()
