"""Jobs: who trains with whom, what is left, and a command that was ended and goes on."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from pointdep.contrastive.pretraining import loop
from pointdep.contrastive.pretraining import pretrained as pretraining
from pointdep.contrastive.pretraining.pretrained import about_images
from pointdep.contrastive.pretraining.protocols import OBJECTIVES
from pointdep.errors import DivergedError, InputError, ModelFileError
from pointdep.experiments.pretraining_runs import (
    jobs_left,
    measure_pixels,
    merge_experiment,
    merged,
    read_pixels,
    read_runs,
    run_experiment,
    stray_checkpoints,
)
from pointdep.experiments.reports import write_json
from pointdep.experiments.representations import PARTS, Experiment

from .representation_samples import PIXELS, TINY, WHOLE, no_images, some_images, write_run

SHALLOW = Experiment("shallow", objectives=("cpc", "drfc"), **TINY)


@given(
    st.sets(st.tuples(st.sampled_from(OBJECTIVES[:4]), st.integers(3, 7))),
    st.permutations(OBJECTIVES[:4]),
    st.integers(1, 20) | st.none(),
    st.sampled_from(("shallow", "simclr")),
)
@settings(deadline=None)
def test_what_is_left_is_trained_once_and_nothing_else(done, order, together, part):
    asked = Experiment(part, objectives=tuple(order), seeds=5, seed=3, together=together)
    with TemporaryDirectory() as folder:
        for pair in done:
            write_run(Path(folder), asked, {pair: [0.9]}, data={"name": asked.dataset})
        jobs = jobs_left(asked, Path(folder))
        swapped = jobs_left(replace(asked, objectives=OBJECTIVES[:4]), Path(folder))
    every = {(objective, seed) for objective in OBJECTIVES[:4] for seed in range(3, 8)}
    sizes = [len(job.runs) for job in jobs.values()]
    assert sorted(pair for job in jobs.values() for pair in job.runs) == sorted(every - done)
    assert jobs == swapped  # asked for in whatever order
    assert all(size <= (1 if part == "simclr" else together or 20) for size in sizes)
    assert together or done or part == "simclr" or len(jobs) == 1


@pytest.mark.parametrize(
    ("done", "changed", "left"),
    [
        ((0, 1), {}, ["cpc+pcc+drfc-2-3"]),
        ((0, 1), {"objectives": ("cpc", "dm1"), "seeds": 2}, ["dm1-0-1"]),
        ((0, 1), {"seeds": 2}, []),
        ((0, 2), {"objectives": ("cpc", "dm1")}, ["dm1-0+2", "cpc+dm1-1+3"]),  # an L shape
    ],
)
def test_names_of_what_is_left(tmp_path, done, changed, left):
    asked = Experiment("shallow", seeds=4)
    write_run(tmp_path, asked, {(o, s): [0.9] for o in ("cpc", "pcc", "drfc") for s in done})
    assert list(jobs_left(replace(asked, **changed), tmp_path)) == left


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"length": 20_000}, "runs/cpc-0 was run with other iterations: choose another"),
        ({"batch_size": 64, "width": 9}, "other batch_size, width"),
        ({"dataset": "cifar10"}, "other images"),
        ({"loss": {"drfc": {"alpha": 0.1}}}, "runs/drfc-0 was run with other loss options"),
    ],
)
def test_runs_with_other_settings_are_refused(tmp_path, changed, message):
    for objective in ("cpc", "drfc"):
        write_run(tmp_path, Experiment("shallow"), {(objective, 0): [0.9]})
    with pytest.raises(InputError, match=message):
        jobs_left(replace(Experiment("shallow"), **changed), tmp_path)


def test_options_of_an_objective_that_is_not_asked_for(tmp_path):
    """They are what they were, and the same in all its runs."""
    drfc = ("drfc",)
    asked = Experiment("shallow", objectives=drfc, loss={"drfc": {"alpha": 0.1}})
    write_run(tmp_path, asked, {("drfc", 0): [0.9], ("drfc", 1): [0.9]})
    (run,) = read_runs(tmp_path, Experiment("shallow", objectives=("cpc", "pcc")))
    assert run.loss_of("drfc") == {"alpha": 0.1}
    write_run(tmp_path, Experiment("shallow", objectives=drfc), {("drfc", 3): [0.9]})
    with pytest.raises(InputError, match="other loss options for drfc: remove one"):
        read_runs(tmp_path, Experiment("shallow", objectives=("cpc", "pcc")))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cpc+dm1-3-5", "--objectives cpc,dm1 --seed 3 --seeds 3, and else as it began, would"),
        ("dm2-7", "--objectives dm2 --seed 7 --seeds 1, and"),
        ("dm2-5+7", "--objectives dm2 --seed 5 --seeds 3, and"),
        ("dm1+cpc-3-5", "would begin anew, so delete it"),  # from before names had one order
        ("cpc+dm1-0-1", "what is left of it would begin anew"),
        ("cpc+pcc-0-1", "its runs are finished elsewhere, so delete it"),
        ("mine", "no command goes on with it"),
    ],
)
def test_unfinished_runs_of_other_commands_are_told(tmp_path, name, message):
    asked = Experiment("shallow", seeds=4)
    write_run(tmp_path, asked, {(o, seed): [0.9] for o in ("cpc", "pcc") for seed in (0, 1)})
    diverged = write_run(tmp_path, asked, {("drfc", 9): [0.9]})
    (diverged / "run.json").rename(diverged / "diverged.json")
    jobs = jobs_left(asked, tmp_path)
    for one in (
        next(iter(jobs)),
        "cpc+pcc-0+1",
        "drfc-9",
        name,
    ):  # to go on, finished, diverged, that
        (tmp_path / "runs" / one).mkdir(exist_ok=True)
        (tmp_path / "runs" / one / "checkpoint.safetensors").touch()
    (said,) = stray_checkpoints(asked, tmp_path, jobs)
    assert f"runs/{name} is unfinished, and not of this command: " in said
    assert message in said


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
        train_step, write = loop.Training.train_step, loop.write_checkpoint

        def noting(self):
            steps.append(self.step)
            return train_step(self)

        def killed(path, kind, fingerprint, state):
            write(path, kind, fingerprint, state)
            if state["step"] == ends.get(path.parent.name):
                raise KeyboardInterrupt

        monkeypatch.setattr(loop, "_SHARE_OF_WRITING", 1e9)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "write_checkpoint", killed)
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
        assert told["history"] == []
        assert self.train(tmp_path, asked, load=no_images) == found
        assert called == [("cpc",), ("drfc",)]

    def test_what_was_evaluated_before_it_diverged_is_kept(self, tmp_path, monkeypatch):
        asked = replace(SHALLOW, seeds=2)
        whole = self.train(tmp_path / "whole", asked)
        look = loop.Training._look

        def diverging(self, losses, shown):
            look(self, losses * float("nan") if self.step > 8 else losses, shown)

        monkeypatch.setattr(loop.Training, "_look", diverging)
        found = self.train(tmp_path / "ended", asked)
        assert [curve.final for curve in found.curves] == [None] * 4
        for ended, curve in zip(found.curves, whole.curves, strict=True):
            assert (ended.steps, ended.epochs) == (curve.steps[:2], curve.epochs[:2])
            assert ended.accuracy == pytest.approx(curve.accuracy[:2])
        assert self.train(tmp_path / "ended", asked, load=no_images) == found

    def test_told_after_each_job(self, tmp_path, monkeypatch):
        told = []

        def note(found):
            told.append([(curve.objective, curve.seed) for curve in found.curves])

        asked = replace(SHALLOW, together=2)
        self.train(tmp_path, asked, after_each=note)
        first = [("cpc", 0), ("drfc", 0)]
        both = [("cpc", 0), ("cpc", 1), ("drfc", 0), ("drfc", 1)]
        assert told == [first, both]
        self.train(tmp_path, replace(asked, seeds=3), after_each=note)
        assert told[2] == both  # what was there, before anything is trained
        assert len(told[3]) == 6

    def test_a_folder_of_something_else(self, tmp_path):
        (tmp_path / "results.json").write_text('{"command": "pointdep reproduce theorem1"}')
        with pytest.raises(InputError, match="holds the results of pointdep reproduce theorem1"):
            self.train(tmp_path)
        (tmp_path / "results.json").write_text('{"experiment": "deep cifar10"}')
        with pytest.raises(InputError, match="holds the results of deep cifar10"):
            self.train(tmp_path)


class TestBaseline:
    """pixels.json is taken where it is of these images and this part, and measured else."""

    def train(self, folder, load=some_images, **changed):
        asked = replace(SHALLOW, seeds=1, objectives=("cpc",), **changed)
        return run_experiment(asked, folder, load, device="cpu")

    @pytest.mark.parametrize("changed", [WHOLE, {"source": "others"}, {"lossy": True}])
    @pytest.mark.parametrize("before", ["runs", "no runs"])
    def test_of_another_part_or_as_many_other_images(self, tmp_path, changed, before):
        """Without runs the images are read to train, so that they are known."""
        found = self.train(tmp_path / "runs")
        (tmp_path / "no runs").mkdir()
        folder, pixels = tmp_path / before, replace(found.pixels, accuracy=0.01)
        if changed is WHOLE:
            pixels = replace(pixels, **WHOLE)
        else:
            origin = {**pixels.origin, "data": {**found.data, **changed}}
            pixels = replace(pixels, origin=origin)
        write_json(folder / "pixels.json", asdict(pixels))
        (folder / "pd_pixels.json").write_text("{}")
        assert self.train(folder).pixels == read_pixels(folder) == found.pixels
        assert not (folder / "pd_pixels.json").exists()

    def test_a_file_without_origin_is_taken_where_nothing_contradicts(self, tmp_path):
        found = self.train(tmp_path)
        write_json(tmp_path / "pixels.json", asdict(replace(found.pixels, origin=None)))
        assert self.train(tmp_path, no_images).pixels.accuracy == found.pixels.accuracy
        write_json(
            tmp_path / "pixels.json",
            asdict(replace(found.pixels, origin=None, train=63, accuracy=0.01)),
        )
        assert self.train(tmp_path).pixels == found.pixels


class TestMerge:
    def test_nothing_is_trained_and_no_image_read(self, tmp_path):
        asked = Experiment("shallow", seeds=9)
        write_run(tmp_path, asked, {("cpc", 0): [0.9], ("cpc", 1): [0.8]})
        found = merge_experiment(asked, tmp_path)
        assert [curve.final for curve in found.curves] == [0.9, 0.8]
        assert {path.name for path in tmp_path.iterdir()} == {"runs", "pixels.json"}

    def test_needs_runs_and_their_baseline(self, tmp_path):
        asked = Experiment("shallow", seeds=9)
        with pytest.raises(InputError, match="no finished run to merge"):
            merge_experiment(asked, tmp_path)
        write_run(tmp_path, asked, {("cpc", 0): [0.9]})
        write_json(tmp_path / "pixels.json", asdict(replace(read_pixels(tmp_path), **WHOLE)))
        with pytest.raises(InputError, match="is of other images or another part: copy that of"):
            merge_experiment(asked, tmp_path)
        (tmp_path / "pixels.json").unlink()
        with pytest.raises(InputError, match="json is not there: copy that of the runs"):
            merge_experiment(asked, tmp_path)


@pytest.mark.parametrize(
    ("limit", "train", "fitting", "refused"),
    [
        (None, 60_000, (None, 60_000, 70_000), (5_000, 59_999)),
        (None, 59_000, (None, 59_000, 60_000), (5_000,)),  # files with fewer images
        (70_000, 60_000, (None, 70_000), (5_000,)),
        (60_000, 60_000, (None, 60_000, 70_000), (5_000,)),
        (20_000, 20_000, (20_000,), (None, 19_999, 20_001, 60_000)),
    ],
)
def test_a_limit_that_contradicts_the_runs(tmp_path, limit, train, fitting, refused):
    """Although nothing is left to train, and nothing is read."""
    made = Experiment("shallow", objectives=("cpc",), seeds=1, limit=limit)
    write_run(tmp_path, made, {("cpc", 0): [0.9]}, data={"train": train})
    for asked in fitting:
        run_experiment(replace(made, limit=asked), tmp_path, no_images)
    for asked in refused:
        with pytest.raises(InputError, match=f"{train} training and 10000 test images, not of"):
            run_experiment(replace(made, limit=asked), tmp_path, no_images)
        with pytest.raises(InputError, match="give the same --limit"):
            merge_experiment(replace(made, limit=asked), tmp_path)


def test_a_limit_where_no_file_says_what_it_was(tmp_path):
    made = Experiment("shallow", objectives=("cpc",), seeds=1)
    write_run(tmp_path, made, {("cpc", 0): [0.9]}, data={"train": 20_000})
    write_json(tmp_path / "pixels.json", asdict(replace(read_pixels(tmp_path), origin=None)))
    for asked in (None, 20_000):
        merge_experiment(replace(made, limit=asked), tmp_path)
    for asked in (5_000, 30_000):
        with pytest.raises(InputError, match="give the same --limit"):
            merge_experiment(replace(made, limit=asked), tmp_path)


IMAGES = some_images(rows=200, noise=200)


@pytest.mark.parametrize(
    ("part", "rows", "scaler", "C"),
    [("shallow", 4, MinMaxScaler(), 10.0), ("simclr", 8, StandardScaler(), 0.1)],
)
def test_like_scikit_learn(part, rows, scaler, C):
    found = measure_pixels(Experiment(part, dataset="digits"), IMAGES, "cpu")
    train, test = (
        images[:, 0, :rows].reshape(len(images), -1).numpy().astype(np.float64)
        for images in (IMAGES.train, IMAGES.test)
    )
    model = LogisticRegression(C=C, max_iter=10_000, tol=1e-8)
    model.fit(scaler.fit_transform(train), IMAGES.train_labels)
    theirs = model.score(scaler.transform(test), IMAGES.test_labels)
    assert 0.3 < theirs < 0.99
    assert found.accuracy == pytest.approx(theirs, abs=1 / len(test) + 1e-9)
    assert (found.train, found.test, found.classes, found.converged) == (200, 200, 4, True)
    assert found.origin == {"part": part, "data": about_images(IMAGES), "limit": None}
    for other in PARTS:  # the two parts on whole images share their baseline
        fits = found.fits(Experiment(other, dataset="digits"), found.origin["data"])
        assert fits == ((other == "shallow") == (part == "shallow"))


def test_a_file_of_before_and_one_that_cannot_be_read(tmp_path):
    before = {k: v for k, v in asdict(PIXELS).items() if k != "origin"}  # as it was once written
    (tmp_path / "pixels.json").write_text(json.dumps(before))
    assert read_pixels(tmp_path) == PIXELS
    (tmp_path / "pixels.json").write_text('{"accuracy": 1}')
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_pixels(tmp_path)
