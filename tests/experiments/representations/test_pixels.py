"""The baseline beside scikit-learn's classifier on the same pixels."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from pointdep.errors import ModelFileError
from pointdep.experiments.representations.pixels import measure_pixels, read_pixels, write_pixels
from pointdep.experiments.representations.settings import Experiment

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


def test_there_and_back(tmp_path):
    assert read_pixels(tmp_path) is None
    write_pixels(PIXELS, tmp_path)
    assert read_pixels(tmp_path) == PIXELS
    (tmp_path / "pixels.json").write_text('{"accuracy": 1}')
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_pixels(tmp_path)
