"""Jobs: who trains with whom, what is left, and a command that was ended and goes on."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointdep.contrastive.pretraining import loop
from pointdep.contrastive.pretraining import run as pretraining
from pointdep.contrastive.pretraining.settings import OBJECTIVES
from pointdep.errors import DivergedError, InputError
from pointdep.experiments.representations.jobs import jobs_left
from pointdep.experiments.representations.results import merged, read_runs
from pointdep.experiments.representations.run import run_experiment
from pointdep.experiments.representations.settings import Experiment

from .synthetic import TINY, no_images, some_images, write_run

SHALLOW = Experiment("shallow", objectives=("cpc", "drfc"), **TINY)


def pairs_of(jobs):
    return [pair for job in jobs for pair in job.settings.runs]


@given(
    st.lists(st.sampled_from(OBJECTIVES), min_size=1, unique=True),
    st.integers(1, 12),
    st.integers(1, 40) | st.none(),
    st.sampled_from(("shallow", "simclr")),
)
def test_every_objective_and_seed_once(tmp_path_factory, objectives, seeds, together, part):
    asked = Experiment(part, objectives=tuple(objectives), seeds=seeds, seed=3, together=together)
    jobs = jobs_left(asked, tmp_path_factory.getbasetemp() / "empty")
    pairs = pairs_of(jobs)
    assert sorted(pairs) == sorted((o, s) for o in objectives for s in range(3, 3 + seeds))
    assert len({job.name for job in jobs}) == len(jobs)
    if part == "simclr":
        assert len(jobs) == len(pairs)
    elif together is None:
        assert len(jobs) == 1
    else:
        assert max(len(job.settings.runs) for job in jobs) <= together


def test_what_others_ran_is_not_run_again(tmp_path):
    asked = Experiment("shallow", seeds=3)
    write_run(tmp_path, asked, {(o, s): [0.9] for o in ("cpc", "pcc", "drfc") for s in (0, 1)})
    (left,) = jobs_left(asked, tmp_path)
    assert (left.name, left.settings.seeds) == ("cpc+pcc+drfc-2", (2,))
    (left,) = jobs_left(replace(asked, objectives=("cpc", "dm1"), seeds=2), tmp_path)
    assert (left.name, left.settings.objectives) == ("dm1-0-1", ("dm1",))
    assert jobs_left(replace(asked, seeds=2), tmp_path) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"length": 20_000}, "runs/cpc-0 was run with other iterations: choose another"),
        ({"batch_size": 64, "width": 9}, "other batch_size, width"),
        ({"dataset": "cifar10"}, "other images"),
        ({"loss": {"cpc": {"alpha": 1}}}, "other loss"),
    ],
)
def test_runs_with_other_settings_are_refused(tmp_path, changed, message):
    write_run(tmp_path, Experiment("shallow"), {("cpc", 0): [0.9]})
    with pytest.raises(InputError, match=message):
        jobs_left(replace(Experiment("shallow"), **changed), tmp_path)


def test_runs_of_other_images_are_refused(tmp_path):
    write_run(tmp_path, Experiment("shallow"), {("cpc", 0): [0.9]})
    write_run(tmp_path, Experiment("shallow"), {("pcc", 0): [0.9]}, data={"lossy": True})
    with pytest.raises(InputError, match="are of different images"):
        read_runs(tmp_path, Experiment("shallow"))


def test_of_two_runs_of_a_pair_one_counts(tmp_path):
    write_run(tmp_path, Experiment("shallow"), {("cpc", 0): [0.8], ("cpc", 1): [0.7]})
    write_run(tmp_path, Experiment("shallow"), {("cpc", 0): [0.8], ("drfc", 0): [0.6]})
    found = merged(read_runs(tmp_path, Experiment("shallow")))
    assert [(c.objective, c.seed, c.final) for c in found] == [
        ("cpc", 0, 0.8), ("cpc", 1, 0.7), ("drfc", 0, 0.6),
    ]  # fmt: skip


def accuracies(found):
    return {(c.objective, c.seed): (c.steps, c.accuracy) for c in found.curves}


class TestRun:
    def train(self, folder, experiment=SHALLOW, load=some_images, **how):
        return run_experiment(experiment, folder, load, device="cpu", **how)

    def test_groups_give_what_all_at_once_gives(self, tmp_path):
        whole = self.train(tmp_path / "whole")
        apart = self.train(tmp_path / "apart", replace(SHALLOW, together=2))
        assert [run.name for run in apart.runs] == ["cpc+drfc-0", "cpc+drfc-1"]
        assert accuracies(whole) == accuracies(apart)
        assert {steps for steps, _ in accuracies(whole).values()} == {(4, 8, 12)}

    def test_a_finished_one_needs_no_images_and_no_encoder(self, tmp_path):
        done = self.train(tmp_path)
        place = tmp_path / "runs" / "cpc+drfc-0-1"
        for path in (place / "encoder").iterdir():
            path.unlink()
        assert self.train(tmp_path, load=no_images) == done

    def test_an_ended_one_goes_on_from_its_checkpoint(self, tmp_path, monkeypatch):
        asked = replace(SHALLOW, together=2)
        whole = self.train(tmp_path / "whole", asked)
        steps, ends = [], {"cpc+drfc-1": 8}
        train_step, write = loop.Training.train_step, loop.write_snapshot

        def noting(self):
            steps.append(self.step)
            return train_step(self)

        def killed(path, state, fingerprint):
            write(path, state, fingerprint)
            if state["step"] == ends.get(path.parent.name):
                raise KeyboardInterrupt

        monkeypatch.setattr(loop, "_SHARE_OF_WRITING", 1e9)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "write_snapshot", killed)
            with pytest.raises(KeyboardInterrupt):
                self.train(tmp_path / "ended", asked, checkpoint_every=0)
        assert [c.seed for c in merged(read_runs(tmp_path / "ended", asked))] == [0, 0]
        monkeypatch.setattr(loop.Training, "train_step", noting)
        found = self.train(tmp_path / "ended", asked)
        assert steps == [8, 9, 10, 11]  # of the second job alone
        assert accuracies(found) == accuracies(whole)

    def test_other_images_are_refused_before_training(self, tmp_path):
        self.train(tmp_path)
        with pytest.raises(InputError, match="four patterns, 64 to train on"):
            self.train(tmp_path, replace(SHALLOW, seeds=3), lambda: some_images(rows=80))

    def test_one_that_diverges_is_written_down(self, tmp_path, monkeypatch):
        pretrain, called = pretraining.pretrain, []

        def diverging(images, settings, **how):
            called.append(settings.objectives)
            if settings.objectives == ("cpc",):
                raise DivergedError("the loss is not finite")
            return pretrain(images, settings, **how)

        monkeypatch.setattr(pretraining, "pretrain", diverging)
        asked = replace(SHALLOW, together=1, seeds=1)
        found = self.train(tmp_path, asked)
        finals = {curve.objective: curve.final for curve in found.curves}
        assert finals["cpc"] is None
        assert finals["drfc"] > 0.25
        told = json.loads((tmp_path / "runs" / "cpc-0" / "diverged.json").read_text())
        assert told["reason"] == "the loss is not finite"
        assert self.train(tmp_path, asked, load=no_images) == found
        assert called == [("cpc",), ("drfc",)]

    def test_a_folder_of_something_else(self, tmp_path):
        (tmp_path / "results.json").write_text('{"command": "pointdep reproduce theorem1"}')
        with pytest.raises(InputError, match="holds the results of pointdep reproduce theorem1"):
            self.train(tmp_path)
        (tmp_path / "results.json").write_text('{"experiment": "deep cifar10"}')
        with pytest.raises(InputError, match="holds the results of deep cifar10"):
            self.train(tmp_path)
