"""What an experiment is told, and what it tells `pretrain`."""

from dataclasses import replace

from pointdep.contrastive.pretraining.protocols import Settings
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.experiments.representations import PARTS, Experiment, own_options
from refusals import refused


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


def test_the_runs_are_the_protocol_s_with_the_linear_monitor():
    found = Experiment("shallow", seeds=2).pretraining(("cpc", "drfc"), (0, 1))
    more = {"iterations": 21_000, "evaluate_every": 1_000, "precision": "32", "monitor": "linear"}
    assert found == Settings("shallow", ("cpc", "drfc"), (0, 1), **more)
    deep = Experiment("deep", length=7, minutes=3.0).pretraining(("pcc",), (4,))
    assert (deep.model, deep.epochs, deep.minutes, deep.batch_size) == ("amdim", 7, 3.0, 480)
    chosen = Experiment("simclr", loss={"drfc": {"scale": 12}, "cpc": {"temperature": 0.2}})
    assert chosen.pretraining(("drfc",), (0,)).loss == {"scale": 12}
    assert chosen.pretraining(("cpc",), (0,)).loss == {"temperature": 0.2}
    assert chosen.pretraining(("pcc",), (0,)).loss == {}


def test_replicas_share_options_that_are_each_its_own():
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
