"""The encoder as a PD model: PMI, retrieval and audit beside what is known of them."""

import json

import numpy as np
import pytest
import torch

from pointdep.contrastive.pretraining.protocols import Settings
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.data.images import load_images
from pointdep.experiments import encoder_pd
from pointdep.experiments.pretraining_runs import merge_experiment, run_experiment
from pointdep.experiments.representations import Experiment
from refusals import refused

from .representation_samples import no_images, some_images

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
