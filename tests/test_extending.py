"""Methods and critics of the user's own, wherever a built-in one can be chosen."""

import pickle
import sys
import textwrap

import numpy as np
import pytest
import torch
from sklearn.base import clone

from pointdep import (
    METHODS,
    ConditionalDependency,
    Critic,
    Method,
    ModelFileError,
    PointwiseDependency,
    objectives,
    register_critic,
    register_method,
)
from pointdep.cli.app import run
from pointdep.core.critics import CRITICS, ReplicaLinear, ReplicaMLP, build_critic
from pointdep.core.methods import get_method
from refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.FitWarning")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = X[:, :2] + 0.5 * RNG.normal(size=(80, 2))
FEW = {"folds": 2, "max_epochs": 2, "random_state": 0, "progress": False}
SOURCE = textwrap.dedent(
    """
    from pointdep import Method, objectives
    from pointdep.core.critics import BilinearCritic

    METHOD = Method("own_pc", "pc again", objectives.pc)
    NUMBER = 3

    class Doubled(BilinearCritic):
        def embed_y(self, y):
            return 2.0 * y
    """
)


class Distance(Critic):
    """Minus the squared distance of two embeddings."""

    def __init__(self, replicas, x_dim, y_dim, *, hidden=(8,)):
        super().__init__(replicas)
        self.x_net = ReplicaMLP(replicas, [x_dim, *hidden, 4], "silu")
        self.y_net = ReplicaMLP(replicas, [y_dim, *hidden, 4], "silu")

    def reset(self, generators):
        self.x_net.reset(generators)
        self.y_net.reset(generators)

    def pairs(self, x, y):
        return -(self.x_net(x) - self.y_net(y)).square().sum(-1)

    def matrix(self, x, y):
        return -(self.x_net(x).unsqueeze(-2) - self.y_net(y).unsqueeze(-3)).square().sum(-1)


def scaled(scores, *, joint=None, product=None, scale=1.0):
    return scale * objectives.pc(scores, joint=joint, product=product)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the working directory that no Python path holds."""
    (tmp_path / "own_things.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "own_things"
    sys.modules.pop("own_things", None)


def pmi(**options):
    return PointwiseDependency(**FEW, **options).fit(X, Y).oof_pmi_


class TestMethods:
    def test_as_the_one_it_copies(self):
        register_method(Method("scaled", "pc, scaled", scaled, options={"scale": 1.0}))
        assert list(METHODS)[-1] == "scaled"
        assert np.array_equal(pmi(method="scaled"), pmi(method="pc"))
        model = PointwiseDependency(method="scaled", method_options={"scale": 3.0}, **FEW)
        assert clone(model).fit(X, Y).mutual_information().nats > 0
        refused("did you mean 'scale'", get_method, "scaled", {"scal": 2.0})
        # What is left out is as of pc.
        made, pc = register_method(Method("plain", "", objectives.pc)), METHODS["pc"]
        scores = torch.randn(5, 5)
        assert made.is_mean_of_pmi
        assert made.reference == pc.reference
        for part in ("read_out", "inverse", "inference"):
            assert torch.equal(getattr(made, part)(scores), getattr(pc, part)(scores))
        # Again it is replaced.
        register_method(Method("mean", "", objectives.pc))
        register_method(Method("mean", "", objectives.js))
        assert METHODS["mean"].objective is objectives.js
        # It travels by its name.
        made = register_method(Method("scaled", "", scaled, options={"scale": 1.0}))
        assert pickle.loads(pickle.dumps(made.configure(scale=2.0))) == made.configure(scale=2.0)

    @pytest.mark.parametrize(
        ("wrong", "cause"),
        [
            (Method("pc", "", objectives.pc), "built in"),
            (Method("a b", "", objectives.pc), "identifier"),
            (objectives.pc, "identifier"),
        ],
    )
    def test_refused(self, wrong, cause):
        refused(cause, register_method, wrong)


class TestCritics:
    @pytest.mark.parametrize("by", ["class", "name", "path"])
    def test_chosen(self, by, tmp_path):
        register_critic("distance", Distance)
        path = f"{__name__}:Distance"
        critic = {"class": Distance, "name": "distance", "path": path}[by]
        model = PointwiseDependency(critic=critic, hidden=(6,), **FEW).fit(X, Y)
        assert isinstance(model.model_.critic, Distance)
        assert np.isfinite(model.pmi(X, Y)).all()
        assert model.retrieve(X[:3], Y, k=2).indices.shape == (3, 2)
        assert clone(model).get_params()["critic"] is critic
        model.save(tmp_path / "model")
        again = PointwiseDependency.load(tmp_path / "model")
        assert again.fit_params_["critic"] == (path if by == "path" else "distance")
        assert np.array_equal(again.pmi(X, Y), model.pmi(X, Y))

    def test_options_widths_names_and_inner_products(self):
        critic = build_critic(Distance, 2, 3, 5, hidden=(7,), activation="relu")
        assert critic.x_net.layers[0].weight.shape == (2, 3, 7)
        assert build_critic(Distance, 2, 3, 5).x_net.layers[0].weight.shape == (2, 3, 8)
        model = ConditionalDependency(PointwiseDependency(critic=Distance, **FEW))
        assert np.isfinite(model.fit(X, Y, X[:, :1] ** 2).mutual_information().nats)
        refused("'auto' is built in", register_critic, "auto", Distance)
        refused(r"subclass of pointdep\.Critic", register_critic, "mine", torch.nn.Linear)

        class Dot(Critic):
            has_inner = separable = True

            def __init__(self, replicas, x_dim, y_dim):
                super().__init__(replicas)
                self.layer = ReplicaLinear(replicas, x_dim, y_dim, bias=False)
                torch.nn.init.ones_(self.layer.weight)

            def inner_x(self, x):
                return self.layer(x), x.new_zeros(x.shape[:-1])

            def inner_y(self, y):
                return y, None

        x, y = torch.randn(1, 4, 3), torch.randn(1, 5, 2)
        wanted = torch.einsum("rnd,rme->rnm", x, y)
        torch.testing.assert_close(Dot(1, 3, 2).matrix(x, y), wanted)
        model = PointwiseDependency(critic=Dot, **FEW).fit(X, Y)
        assert model.model_.inner_is_exact
        exact = model.retrieve(X[:5], Y, k=3, exact=True)
        assert np.array_equal(model.retrieve(X[:5], Y, k=3).indices, exact.indices)

    @pytest.mark.parametrize(
        ("wrong", "cause"),
        [
            (torch.nn.Linear, "subclass of pointdep.Critic"),
            (Distance(1, 3, 2), "give the class, critic=Distance"),
            ("own_things:NUMBER", "subclass of pointdep.Critic, got 3"),
            ("own_things:Other", "'own_things:Other' cannot be imported"),
            ("no_such_module:Other", "No module named 'no_such_module'"),
        ],
    )
    def test_refused(self, wrong, cause, module, tmp_path):
        sys.path.append(str(tmp_path))
        refused(cause, PointwiseDependency(critic=wrong, **FEW).fit, X, Y)


class TestMissingAtLoad:
    """What a model's folder names is not imported: others may have written it."""

    def saved(self, path, **options):
        PointwiseDependency(**FEW, **options).fit(X, Y).save(path)
        return path

    def refused(self, path, *causes):
        with pytest.raises(ModelFileError) as caught:
            PointwiseDependency.load(path)
        assert all(cause in str(caught.value) for cause in (str(path), *causes))

    def test_by_path(self, module, tmp_path):
        sys.path.append(str(tmp_path))
        named = {"method": f"{module}:METHOD", "critic": f"{module}:Doubled"}
        for option, name in named.items():
            folder = self.saved(tmp_path / option, **{option: name})
            for table in (METHODS, CRITICS):
                table._made.pop(name, None)
            del sys.modules[module]
            self.refused(folder, repr(name), f"import {module} first")
            assert module not in sys.modules
            __import__(module)
            assert np.isfinite(PointwiseDependency.load(folder).pmi(X, Y)).all()

    def test_by_registered_name_and_the_class_given(self, tmp_path):
        register_method(Method("scaled", "", scaled))
        register_critic("distance", Distance)
        method = self.saved(tmp_path / "method", method="scaled")
        critic = self.saved(tmp_path / "critic", critic="distance")
        del METHODS._entries["scaled"], CRITICS._entries["distance"]
        self.refused(method, "'scaled'", "register_method")
        self.refused(critic, "'distance'", "register_critic", "load(path, critic=...)")

        class Local(Distance):
            pass

        folder = self.saved(tmp_path / "model", critic=Local)
        assert isinstance(PointwiseDependency.load(folder, critic=Local).model_.critic, Local)
        refused("Local", PointwiseDependency.load, folder)
        refused("critic: leave `critic` out", PointwiseDependency.load, folder, critic=Distance)


class TestCommandLine:
    def test_by_path(self, module, capsys):
        np.save("x.npy", X)
        np.save("y.npy", Y)
        own = ["--method", f"{module}:METHOD", "--critic", f"{module}:Doubled"]
        few = ["--folds", "2", "--max-epochs", "2", "-q"]
        assert run(["mi", "x.npy", "y.npy", *own, *few]) == 0
        assert run(["fit", "x.npy", "y.npy", "-o", "model", *own, *few]) == 0
        score = ["score", "model", "x.npy", "y.npy", "-o", "pmi.csv"]
        del sys.modules[module]
        capsys.readouterr()
        assert run(score) == 2
        assert f"pointdep --import {module}" in capsys.readouterr().err
        assert run(["--import", module, *score]) == 0
        assert run(["--import", "no_such_module", *score]) == 2
        assert "no_such_module" in capsys.readouterr().err
