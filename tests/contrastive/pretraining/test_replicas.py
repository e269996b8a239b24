"""The shallow model's objectives and seeds train side by side, and none knows of the others."""

from itertools import combinations

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from pointdep.contrastive import Settings, pretrain
from pointdep.contrastive.pretraining import loop
from pointdep.contrastive.pretraining.protocols import OBJECTIVES
from pointdep.data.images import load_images
from pointdep.errors import DivergedError, FitWarning


def train(objectives, seeds=(0,), **options):
    options = {"epochs": 2, "width": 16, "depth": 3, "batch_size": 16, **options}
    settings = Settings("shallow", objectives, seeds, precision="32", **options)
    return pretrain(load_images("digits").head(64, 40), settings, device="cpu")


def weights(done, replica):
    """Of one replica: {name: tensor}; permutations have their replicas in the second place."""
    state = done.encoder.recipe.state_dict()
    return {k: v[:, replica] if "permutations" in k else v[replica] for k, v in state.items()}


def close(ours, theirs):
    """To rounding; two epochs move weights by a thousandth."""
    assert ours.keys() == theirs.keys()
    return all(torch.allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-8) for name in ours)


def test_each_is_the_run_with_that_objective_and_seed_alone():
    """To the last bit here; a library of matrix products may choose by the number of replicas."""
    together = train(OBJECTIVES, (3, 5))
    for replica, (objective, seed) in enumerate(together.settings.runs):
        alone = train((objective,), (seed,))
        assert close(weights(together, replica), weights(alone, 0)), (objective, seed)
        ours, theirs = together.outcomes[replica], alone.outcomes[0]
        assert (ours.objective, ours.seed) == (objective, seed)
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-6)
        assert ours.linear == pytest.approx(theirs.linear, abs=1 / 40)
    differ = [weights(together, r) for r in (0, 1, 4, 5)]  # cpc and drfc; pcc is variational here
    assert not any(close(one, other) for one, other in combinations(differ, 2))
    # An option reaches the objectives that have it.
    plain, changed = (train(("cpc", "drfc"), loss=loss) for loss in ({}, {"alpha": 0.5}))
    assert close(weights(plain, 0), weights(changed, 0))
    assert not close(weights(plain, 1), weights(changed, 1))


def test_the_linear_accuracy_is_that_of_scikit_learn():
    """Codes of pixels that are always black are almost constant, and far from zero for that."""
    images = load_images("digits").head(128, 360)
    sizes = {"epochs": 2, "width": 16, "depth": 3, "batch_size": 32}
    done = pretrain(images, Settings("shallow", ("cpc", "drfc", "dm1"), **sizes), device="cpu")
    train, test = (done.encoder.encode(part).double() for part in (images.train, images.test))
    for outcome, rows, asked in zip(done.outcomes, train, test, strict=True):
        assert (rows.mean(0).abs() > 1e4 * (rows.amax(0) - rows.amin(0))).any()
        model = make_pipeline(MinMaxScaler(), LogisticRegression(C=10.0, tol=1e-6, max_iter=5000))
        model.fit(rows.numpy(), images.train_labels.numpy())
        share = model.score(asked.numpy(), images.test_labels.numpy())
        assert outcome.linear == pytest.approx(share, abs=0.003)


LARGE = {"learning_rate": 0.5}  # DM1 takes exponentials of scores, the others their logarithms


class TestDivergence:
    def test_next_to_others_it_touches_none_of_them(self):
        with pytest.raises(DivergedError, match=r"not finite at step \d+ \(epoch \d\)"):
            train(("dm1",), **LARGE)
        with pytest.warns(FitWarning, match=r"diverged: .* \(dm1-3, dm1-5\)"):
            together = train(("cpc", "dm1", "pcc"), (3, 5), **LARGE, evaluate_every=1)
        others = train(("cpc", "pcc"), (3, 5), **LARGE)
        sound = [bool(weights(together, r)["product.weight"].isfinite().all()) for r in range(6)]
        assert sound == [True, True, False, False, True, True]
        for ours, theirs in ((0, 0), (1, 1), (4, 2), (5, 3)):
            assert close(weights(together, ours), weights(others, theirs))
            found, expected = together.outcomes[ours], others.outcomes[theirs]
            assert found.loss == pytest.approx(expected.loss, rel=1e-5)
            assert None not in (found.loss, found.knn, found.linear)
        for lost in together.outcomes[2:4]:
            assert (lost.objective, lost.loss, lost.knn, lost.linear) == ("dm1", None, None, None)

    def test_weights_lost_in_the_very_last_step(self, monkeypatch):
        step = loop.Training.train_step

        def spoiling(self):
            losses = step(self)
            if self.step == self.steps - 1:
                with torch.no_grad():
                    self.recipe.encoders.shifts[0].layers[0].weight[0] = torch.nan
            return losses

        monkeypatch.setattr(loop.Training, "train_step", spoiling)
        done = train(("cpc", "drfc"))
        assert (done.outcomes[0].knn, done.outcomes[0].linear) == (None, None)
        assert None not in (done.outcomes[1].knn, done.outcomes[1].linear)
        with pytest.raises(DivergedError, match="not finite"):
            train(("cpc",))
