"""What an experiment is told, its runs, what is read of them, and their encoders as PD models."""

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from pointdep.contrastive.pretraining import loop
from pointdep.contrastive.pretraining import pretrained as pretraining
from pointdep.contrastive.pretraining.pretrained import about_images
from pointdep.contrastive.pretraining.protocols import OBJECTIVES, Settings
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.data.images import load_images
from pointdep.errors import DivergedError, ModelFileError
from pointdep.experiments import encoder_pd
from pointdep.experiments import pretraining_runs as runs_of
from pointdep.experiments.pretraining_runs import merge_experiment, read_pixels, run_experiment
from pointdep.experiments.reports import write_json
from pointdep.experiments.representations import PARTS, Experiment, own_options
from refusals import refused

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
        jobs = runs_of.jobs_left(asked, Path(folder))
        swapped = runs_of.jobs_left(replace(asked, objectives=OBJECTIVES[:4]), Path(folder))
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
    assert list(runs_of.jobs_left(replace(asked, **changed), tmp_path)) == left


def test_runs_with_other_settings_are_refused(tmp_path):
    for objective in ("cpc", "drfc"):
        write_run(tmp_path, Experiment("shallow"), {(objective, 0): [0.9]})
    for changed, message in (
        ({"length": 20_000}, "runs/cpc-0 was run with other iterations: choose another"),
        ({"batch_size": 64, "width": 9}, "other batch_size, width"),
        ({"dataset": "cifar10"}, "other images"),
        ({"loss": {"drfc": {"alpha": 0.1}}}, "runs/drfc-0 was run with other loss options"),
    ):
        refused(message, runs_of.jobs_left, replace(Experiment("shallow"), **changed), tmp_path)
    write_run(tmp_path, Experiment("shallow"), {("pcc", 0): [0.9]}, data={"lossy": True})
    refused("are of different images", runs_of.read_runs, tmp_path, Experiment("shallow"))


def test_options_of_an_objective_that_is_not_asked_for(tmp_path):
    """They are what they were, and the same in all its runs."""
    drfc, others = ("drfc",), Experiment("shallow", objectives=("cpc", "pcc"))
    asked = Experiment("shallow", objectives=drfc, loss={"drfc": {"alpha": 0.1}})
    write_run(tmp_path, asked, {("drfc", 0): [0.9], ("drfc", 1): [0.9]})
    (run,) = runs_of.read_runs(tmp_path, others)
    assert run.loss_of("drfc") == {"alpha": 0.1}
    write_run(tmp_path, Experiment("shallow", objectives=drfc), {("drfc", 3): [0.9]})
    refused("other loss options for drfc: remove one", runs_of.read_runs, tmp_path, others)


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
    jobs = runs_of.jobs_left(asked, tmp_path)
    for one in (next(iter(jobs)), "cpc+pcc-0+1", "drfc-9", name):  # one goes on, two ended
        (tmp_path / "runs" / one).mkdir(exist_ok=True)
        (tmp_path / "runs" / one / "checkpoint.safetensors").touch()
    (said,) = runs_of.stray_checkpoints(asked, tmp_path, jobs)
    assert f"runs/{name} is unfinished, and not of this command: " in said
    assert message in said


def test_of_two_runs_one_counts_and_a_file_of_before(tmp_path):
    write_run(tmp_path, Experiment("shallow"), {("cpc", 0): [0.8], ("cpc", 1): [0.7]})
    write_run(tmp_path, Experiment("shallow"), {("cpc", 0): [0.8], ("drfc", 0): [0.6]})
    found = runs_of.merged(runs_of.read_runs(tmp_path, Experiment("shallow")))
    finals = [(c.objective, c.seed, c.final) for c in found]
    assert finals == [("cpc", 0, 0.8), ("cpc", 1, 0.7), ("drfc", 0, 0.6)]
    before = {k: v for k, v in asdict(PIXELS).items() if k != "origin"}  # as it was once written
    (tmp_path / "pixels.json").write_text(json.dumps(before))
    assert read_pixels(tmp_path) == PIXELS
    (tmp_path / "pixels.json").write_text('{"accuracy": 1}')
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_pixels(tmp_path)


def accuracies(found):
    return {(c.objective, c.seed): (c.steps, c.accuracy) for c in found.curves}


class TestRun:
    def train(self, folder, experiment=SHALLOW, load=some_images, **how):
        return runs_of.run_experiment(experiment, folder, load, device="cpu", **how)

    def test_groups_give_what_all_at_once_gives(self, tmp_path):
        whole = self.train(tmp_path / "whole")
        apart = self.train(tmp_path / "apart", replace(SHALLOW, together=2))
        assert [run.name for run in apart.runs] == ["cpc+drfc-0", "cpc+drfc-1"]
        assert accuracies(whole) == accuracies(apart)
        assert {steps for steps, _ in accuracies(whole).values()} == {(4, 8, 12)}
        # A finished one needs no images and no encoder.
        for path in (tmp_path / "whole" / "runs" / "cpc+drfc-0-1" / "encoder").iterdir():
            path.unlink()
        assert self.train(tmp_path / "whole", load=no_images) == whole
        # Other images are refused before training, and the folder of something else.
        more = tmp_path / "whole", replace(SHALLOW, seeds=3), lambda: some_images(rows=80)
        refused("four patterns, 64 to train on", self.train, *more)
        (tmp_path / "results.json").write_text('{"command": "pointdep reproduce theorem1"}')
        refused("holds the results of pointdep reproduce theorem1", self.train, tmp_path)
        (tmp_path / "results.json").write_text('{"experiment": "deep cifar10"}')
        refused("holds the results of deep cifar10", self.train, tmp_path)

    def test_an_ended_one_goes_on_from_its_checkpoint(self, tmp_path, monkeypatch):
        asked, steps, ends = replace(SHALLOW, together=2), [], {"cpc+drfc-1": 8}
        whole = self.train(tmp_path / "whole", asked)
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
        done = runs_of.merged(runs_of.read_runs(tmp_path / "ended", asked))
        assert [c.seed for c in done] == [0, 0]
        monkeypatch.setattr(loop.Training, "train_step", noting)
        found = self.train(tmp_path / "ended", asked)
        assert steps == [8, 9, 10, 11]  # of the second job alone
        assert accuracies(found) == accuracies(whole)

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
        assert (told["reason"], told["history"]) == ("the loss is not finite", [])
        assert self.train(tmp_path, asked, load=no_images) == found
        assert called == [("cpc",), ("drfc",)]

    def test_what_was_evaluated_before_it_diverged_is_kept(self, tmp_path, monkeypatch):
        asked = replace(SHALLOW, seeds=2)
        whole, look = self.train(tmp_path / "whole", asked), loop.Training._look

        def diverging(self, losses, shown):
            look(self, losses * float("nan") if self.step > 8 else losses, shown)

        monkeypatch.setattr(loop.Training, "_look", diverging)
        found = self.train(tmp_path / "ended", asked)
        assert [curve.final for curve in found.curves] == [None] * 4
        for ended, curve in zip(found.curves, whole.curves, strict=True):
            assert (ended.steps, ended.epochs) == (curve.steps[:2], curve.epochs[:2])
            assert ended.accuracy == pytest.approx(curve.accuracy[:2])
        assert self.train(tmp_path / "ended", asked, load=no_images) == found

    def test_told_after_each_job(self, tmp_path):
        told, asked = [], replace(SHALLOW, together=2)

        def note(found):
            told.append([(curve.objective, curve.seed) for curve in found.curves])

        self.train(tmp_path, asked, after_each=note)
        both = [("cpc", 0), ("cpc", 1), ("drfc", 0), ("drfc", 1)]
        assert told == [[("cpc", 0), ("drfc", 0)], both]
        self.train(tmp_path, replace(asked, seeds=3), after_each=note)
        assert told[2] == both  # what was there, before anything is trained
        assert len(told[3]) == 6


def test_baseline(tmp_path):
    """It is taken where it is of these images and this part, and measured else."""
    asked = replace(SHALLOW, seeds=1, objectives=("cpc",))
    train = partial(runs_of.run_experiment, asked, device="cpu")
    found = train(tmp_path, some_images)
    pixels = replace(found.pixels, accuracy=0.01)
    others = [{**found.data, **other} for other in ({"source": "others"}, {"lossy": True})]
    origins = [{"origin": {**pixels.origin, "data": data}} for data in others]
    for k, changed in enumerate([WHOLE, *origins]):
        for folder in (tmp_path, tmp_path / f"no runs {k}"):
            folder.mkdir(exist_ok=True)
            write_json(folder / "pixels.json", asdict(replace(pixels, **changed)))
            (folder / "pd_pixels.json").write_text("{}")
            assert train(folder, some_images).pixels == read_pixels(folder) == found.pixels
            assert not (folder / "pd_pixels.json").exists()
    # A file without origin is taken where nothing contradicts.
    write_json(tmp_path / "pixels.json", asdict(replace(found.pixels, origin=None)))
    assert train(tmp_path, no_images).pixels.accuracy == found.pixels.accuracy
    other = replace(found.pixels, origin=None, train=63, accuracy=0.01)
    write_json(tmp_path / "pixels.json", asdict(other))
    assert train(tmp_path, some_images).pixels == found.pixels


def test_merging_trains_nothing_and_reads_no_image(tmp_path):
    asked = Experiment("shallow", seeds=9)
    refused("no finished run to merge", merge_experiment, asked, tmp_path)
    write_run(tmp_path, asked, {("cpc", 0): [0.9], ("cpc", 1): [0.8]})
    assert [curve.final for curve in merge_experiment(asked, tmp_path).curves] == [0.9, 0.8]
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "pixels.json"}
    write_json(tmp_path / "pixels.json", asdict(replace(read_pixels(tmp_path), **WHOLE)))
    refused("is of other images or another part: copy that of", merge_experiment, asked, tmp_path)
    (tmp_path / "pixels.json").unlink()
    refused("json is not there: copy that of the runs", merge_experiment, asked, tmp_path)


def test_a_limit_that_contradicts_the_runs(tmp_path):
    """Although nothing is left to train, and nothing is read."""
    for k, (limit, train, fitting, contradicting) in enumerate(
        (
            (None, 60_000, (None, 60_000, 70_000), (5_000, 59_999)),
            (None, 59_000, (None, 59_000, 60_000), (5_000,)),  # files with fewer images
            (70_000, 60_000, (None, 70_000), (5_000,)),
            (60_000, 60_000, (None, 60_000, 70_000), (5_000,)),
            (20_000, 20_000, (20_000,), (None, 19_999, 20_001, 60_000)),
        )
    ):
        made = Experiment("shallow", objectives=("cpc",), seeds=1, limit=limit)
        write_run(tmp_path / str(k), made, {("cpc", 0): [0.9]}, data={"train": train})
        for asked in fitting:
            runs_of.run_experiment(replace(made, limit=asked), tmp_path / str(k), no_images)
        message = f"{train} training and 10000 test images, not of .*give the same --limit"
        for asked in contradicting:
            other = replace(made, limit=asked), tmp_path / str(k)
            refused(message, runs_of.run_experiment, *other, no_images)
            refused("give the same --limit", merge_experiment, *other)
    # Where no file says what it was.
    folder = tmp_path / "4"
    write_json(folder / "pixels.json", asdict(replace(read_pixels(folder), origin=None)))
    for asked in (None, 20_000):
        merge_experiment(replace(made, limit=asked), folder)
    for asked in (5_000, 30_000):
        refused("give the same --limit", merge_experiment, replace(made, limit=asked), folder)


IMAGES = some_images(rows=200, noise=200)


@pytest.mark.parametrize(
    ("part", "rows", "scaler", "C"),
    [("shallow", 4, MinMaxScaler(), 10.0), ("simclr", 8, StandardScaler(), 0.1)],
)
def test_like_scikit_learn(part, rows, scaler, C):
    found = runs_of.measure_pixels(Experiment(part, dataset="digits"), IMAGES, "cpu")
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


SMALL = {"seeds": 1, "length": 1, "width": 4, "batch_size": 16}
ASKED = Experiment("simclr", dataset="digits", objectives=("drfc", "pcc"), **SMALL)


def recipe_of(objective):
    recipe = make_recipe(Settings("simclr", (objective,), width=4, batch_size=16), (1, 8, 8), 4)
    recipe.eval().requires_grad_(False)
    recipe.remember(recipe.prepare_images(some_images().train), torch.Generator().manual_seed(1))
    return recipe


def test_views_by_hand():
    for objective in ("drfc", "cpc"):
        recipe, images = recipe_of(objective), some_images().test
        first, second = encoder_pd.two_views(recipe, images)
        assert first.shape == second.shape == (64, 3, 32, 32)
        assert not torch.equal(first, second)
        found = encoder_pd.ask_views(recipe, first, second)
        pmi = torch.stack([recipe.pmi(row.expand_as(second), second) for row in first])
        assert found["pmi_mean"] == pytest.approx(pmi.diagonal().mean().item(), abs=1e-5)
        apart = [pmi[k, (k - 1) % 64].item() for k in range(64)]
        assert found["mismatched_mean"] == pytest.approx(np.mean(apart), abs=1e-5)
        ranks = np.array([1 + (row > row[k]).sum().item() for k, row in enumerate(pmi)])
        search = found["retrieval"]
        assert search["candidates"] == 64
        assert search["recall_10"] == pytest.approx((ranks <= 10).mean(), abs=1.5 / 64)
        assert search["median_rank"] == pytest.approx(np.median(ranks), abs=1)
    # Equal views are found at once.
    recipe = recipe_of("drfc")
    first, _ = encoder_pd.two_views(recipe, some_images(noise=255).test)
    found = encoder_pd.ask_views(recipe, first, first)
    assert found["retrieval"]["recall_1"] > 0.95
    assert found["pmi_mean"] == pytest.approx(np.log(10), abs=1e-4)  # 10 cos


def test_flipped_labels_are_found_where_features_tell_the_class():
    images = load_images("digits").head(10, 300)
    one_hot = torch.nn.functional.one_hot(images.test_labels, 10).float()
    noise = 0.05 * torch.randn(one_hot.shape, generator=torch.Generator().manual_seed(0))
    found = encoder_pd.ask_labels(one_hot + noise, images, "cpu", False)
    assert (found["rows"], found["flipped"]) == (300, 15)
    assert found["precision"] > 0.9
    assert found["auroc"] > 0.99
    assert found["right_suspects"] <= found["suspects"]
    labels = np.arange(1000) % 10
    given, flipped = encoder_pd.flip(labels, 10)
    assert flipped.sum() == 50
    assert ((given != labels) == flipped).all()
    assert {*given} == {*range(10)}


def test_asked_once_of_drfc_and_of_the_pixels(tmp_path, monkeypatch):
    audits, ask = [], {"device": "cpu", "pd_rows": 60}

    def answer(features, images, device, progress):  # an audit takes seconds
        audits.append(tuple(features.shape))
        return {"rows": len(features), "flipped": 3, "precision": 0.5, "auroc": 0.7}

    monkeypatch.setattr(encoder_pd, "ask_labels", answer)
    found = run_experiment(ASKED, tmp_path, some_images, **ask)
    assert [answers["of"] for answers in found.pd_models] == ["drfc-0", "pixels"]
    assert audits == [(60, 32), (60, 64)]
    drfc, pixels = found.pd_models
    assert drfc["views"]["retrieval"]["candidates"] == 60
    assert pixels["views"].keys() == {"retrieval"}
    assert json.loads((tmp_path / "runs" / "drfc-0" / "pd_model.json").read_text()) == drfc
    assert run_experiment(ASKED, tmp_path, no_images, **ask) == found
    assert (merge_experiment(ASKED, tmp_path, pd_rows=60), len(audits)) == (found, 2)
    fewer = run_experiment(ASKED, tmp_path, some_images, **{**ask, "pd_rows": 50})
    assert fewer.pd_models[0]["views"]["retrieval"]["candidates"] == 50


def test_only_where_the_encoder_and_enough_images_are(tmp_path, monkeypatch):
    monkeypatch.setattr(encoder_pd, "ask_labels", None)  # which nothing calls
    run_experiment(ASKED, tmp_path, some_images, device="cpu")
    (tmp_path / "runs" / "drfc-0" / "encoder").rename(tmp_path / "elsewhere")
    assert run_experiment(ASKED, tmp_path, no_images, device="cpu", pd_rows=60).pd_models == ()
    ask = {"device": "cpu", "pd_rows": 40}
    refused("40 test images are", run_experiment, ASKED, tmp_path / "few", some_images, **ask)


def test_without_options_the_paper_s_and_quick_smaller():
    shallow, deep, simclr = (Experiment(part) for part in PARTS)
    assert (shallow.dataset, shallow.length, shallow.evaluate_every) == ("mnist", 21_000, 1_000)
    assert (shallow.all_seeds, shallow.unit) == (tuple(range(10)), "iterations")
    assert (deep.dataset, deep.length, deep.unit, deep.seeds) == ("cifar10", 300, "epochs", 1)
    assert (simclr.dataset, simclr.seeds, simclr.unit) == ("cifar10", 5, "epochs")
    assert simclr.paper_values == {"cpc": 0.9104, "drfc": 0.9151, "pcc": 0.8869}
    assert Experiment("simclr", dataset="digits").paper_values == {}
    for part in PARTS:
        whole, quick = Experiment(part), Experiment(part).quick()
        assert quick.length < whole.length
        assert quick.limit < 10_000
        assert quick.pretraining(("cpc",), (0,)).width < whole.pretraining(("cpc",), (0,)).width


def test_the_runs_are_the_protocol_s_and_replicas_share_options():
    found = Experiment("shallow", seeds=2).pretraining(("cpc", "drfc"), (0, 1))
    more = {"iterations": 21_000, "evaluate_every": 1_000, "precision": "32", "monitor": "linear"}
    assert found == Settings("shallow", ("cpc", "drfc"), (0, 1), **more)
    deep = Experiment("deep", length=7, minutes=3.0).pretraining(("pcc",), (4,))
    assert (deep.model, deep.epochs, deep.minutes, deep.batch_size) == ("amdim", 7, 3.0, 480)
    chosen = Experiment("simclr", loss={"drfc": {"scale": 12}, "cpc": {"temperature": 0.2}})
    assert chosen.pretraining(("drfc",), (0,)).loss == {"scale": 12}
    assert chosen.pretraining(("cpc",), (0,)).loss == {"temperature": 0.2}
    assert chosen.pretraining(("pcc",), (0,)).loss == {}
    loss = {"drfc": {"alpha": 0.1}, "dm1": {"lam": 2}, "dm2": {"eta": 3}, "rpc": {"b": 0.1}}
    chosen = Experiment("shallow", objectives=("cpc", *loss), loss=loss)
    settings = chosen.pretraining(chosen.objectives, (0,))
    assert settings.loss == {"alpha": 0.1, "lam": 2, "eta": 3, "b": 0.1}
    methods = make_recipe(replace(settings, width=4, depth=2), (1, 8, 8), 4).methods
    for objective, method in zip(chosen.objectives, methods, strict=True):
        own = own_options("shallow", objective, settings.loss)
        assert own == loss.get(objective, {})
        assert own.items() <= dict(method.options).items()


def test_refused():
    for changed, message in (
        ({"part": "deepest"}, "unknown part 'deepest': did you mean 'deep'"),
        ({"dataset": "minst"}, "unknown set of images 'minst': did you mean 'mnist'"),
        ({"objectives": ("cpx",)}, "unknown objective 'cpx'"),
        ({"objectives": ("cpc", "cpc")}, "names one of them twice"),
        ({"length": 0}, "iterations=0 must be at least 1"),
        ({"length": 0, "part": "deep"}, "epochs=0 must be at least 1"),
        ({"seeds": 0}, "seeds=0 must be at least 1"),
        ({"together": 0}, "together=0 must be at least 1"),
        ({"evaluate_every": 0}, "evaluate_every=0 must be at least 1"),
        ({"minutes": -1.0}, "minutes=-1.0 must be"),
        ({"loss": {"drf": {"alpha": 1}}}, "unknown objective 'drf': did you mean 'drfc'"),
        ({"loss": {"cpc": {"alpha": 0.5}}}, "cpc has no options with shallow, got 'alpha'"),
        ({"loss": {"drfc": {"lam": 0.5}}}, "option of the loss drfc 'lam': choose from alpha"),
        ({"loss": {"drfc": {"floor": 0.5}}}, "option of the loss drfc 'floor': .*from alpha"),
        ({"loss": {"drfc": {"alpha": 2}}}, "alpha=2 must be below 1"),
        ({"loss": {"dm1": {"lam": 2}}}, "dm1 has options but is not run"),
        ({"part": "deep", "loss": {"drfc": {"clip": 2}}}, "of the loss drfc 'clip'"),
        ({"part": "deep", "loss": {"cpc": {"clip": "much"}}}, "clip='much' must be a number"),
        ({"part": "deep", "loss": {"cpc": {"clip": -1}}}, "clip=-1 must be above zero"),
        ({"part": "simclr", "loss": {"drfc": {"temperature": 2}}}, "of the loss drfc 'temperat"),
        ({"part": "simclr", "loss": {"cpc": {"temperature": -2}}}, "temperature=-2 must be a pos"),
    ):
        refused(message, Experiment, **{"part": "shallow", **changed})
    assert Experiment("shallow").with_length(5, None).length == 5
    assert Experiment("deep").with_length(None, 5).length == 5
    assert Experiment("deep").with_length(None, None) == Experiment("deep")
    refused("is counted in epochs: give --epochs", Experiment("deep").with_length, 5, None)
    refused("counted in iterations", Experiment("shallow").with_length, None, 5)
