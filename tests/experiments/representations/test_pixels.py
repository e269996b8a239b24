"""The baseline beside scikit-learn's classifier on the same pixels."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from pointdep.contrastive.pretraining.pretrained import about_images
from pointdep.errors import ModelFileError
from pointdep.experiments.representations.pixels import (
    Origin,
    measure_pixels,
    read_pixels,
    write_pixels,
)
from pointdep.experiments.representations.settings import PARTS, Experiment

from .synthetic import PIXELS, some_images

IMAGES = some_images(rows=200, noise=200)


@pytest.mark.parametrize(
    ("part", "rows", "scaler", "C"),
    [("shallow", 4, MinMaxScaler(), 10.0), ("simclr", 8, StandardScaler(), 0.1)],
)
def test_like_scikit_learn(part, rows, scaler, C):
    found = measure_pixels(Experiment(part, dataset="digits"), IMAGES, "cpu")
    train, test = (
        part[:, 0, :rows].reshape(len(part), -1).numpy().astype(np.float64)
        for part in (IMAGES.train, IMAGES.test)
    )
    model = LogisticRegression(C=C, max_iter=10_000, tol=1e-8)
    model.fit(scaler.fit_transform(train), IMAGES.train_labels)
    theirs = model.score(scaler.transform(test), IMAGES.test_labels)
    assert 0.3 < theirs < 0.99
    assert found.accuracy == pytest.approx(theirs, abs=1 / len(test) + 1e-9)
    assert (found.train, found.test, found.classes, found.converged) == (200, 200, 4, True)


def test_what_it_is_of(tmp_path):
    """The same classifier on the same images; a file that does not say which, by their number."""
    shallow, deep, simclr = (Experiment(part, dataset="digits") for part in PARTS)
    found = measure_pixels(shallow, IMAGES, "cpu")
    data = about_images(IMAGES)
    assert found.origin == Origin("shallow", data, None)
    assert found.fits(shallow, data)
    assert not found.fits(simclr, data)
    assert not found.fits(shallow, {**data, "lossy": True})  # as many, and others
    assert not found.fits(shallow, {**data, "train": 1})
    before = replace(found, origin=None)
    assert before.fits(shallow, data)
    assert not before.fits(deep, data)
    assert not before.fits(shallow, {**data, "test": 1})
    whole = measure_pixels(simclr, IMAGES, "cpu")
    assert whole.fits(simclr, data)
    assert whole.fits(deep, data)


def test_there_and_back(tmp_path):
    assert read_pixels(tmp_path) is None
    write_pixels(PIXELS, tmp_path)
    assert read_pixels(tmp_path) == PIXELS
    known = replace(PIXELS, origin=Origin("shallow", about_images(IMAGES), 50))
    write_pixels(known, tmp_path)
    assert read_pixels(tmp_path) == known
    before = {k: v for k, v in asdict(PIXELS).items() if k != "origin"}  # as it was once written
    (tmp_path / "pixels.json").write_text(json.dumps(before))
    assert read_pixels(tmp_path) == PIXELS
    (tmp_path / "pixels.json").write_text('{"accuracy": 1}')
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_pixels(tmp_path)
