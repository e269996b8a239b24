"""What a run is told: the protocols, what is refused, and the way through JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointdep.contrastive.pretraining.protocols import MODELS, OBJECTIVES, Settings
from refusals import refused


def test_what_is_left_out_and_one_replica_per_run():
    shallow, amdim, simclr = (Settings(model) for model in MODELS)
    assert (shallow.batch_size, shallow.learning_rate, shallow.depth) == (128, 1e-4, 30)
    assert shallow.epochs * (60_000 // 128) >= 21_000  # iterations on MNIST
    assert (amdim.epochs, amdim.batch_size, amdim.learning_rate) == (300, 480, 2e-4)
    assert (amdim.width, amdim.depth) == (192, 8)
    assert (simclr.width, simclr.depth) == (64, 18)
    assert (simclr.batch_size, simclr.learning_rate) == (512, 0.4)
    assert Settings("simclr", batch_size=128).learning_rate == pytest.approx(0.1)
    assert Settings("simclr", batch_size=128, learning_rate=0.4).learning_rate == 0.4
    assert Settings("simclr", depth=50, epochs=3).epochs == 3
    counted = Settings("shallow", iterations=21_000, evaluate_every=1_000)
    assert (counted.epochs, counted.iterations, counted.batch_size) == (None, 21_000, 128)
    runs = Settings("shallow", ("cpc", "dm1"), (4, 2)).runs
    assert runs == (("cpc", 4), ("cpc", 2), ("dm1", 4), ("dm1", 2))


def test_refused():
    for message, changed in (
        ("'Simclr': did you mean 'simclr'", {"model": "Simclr"}),
        ("objective 'nce'", {"objectives": ("nce",)}),
        (r"objectives=\(\) .* tuple", {"objectives": ()}),
        ("objectives='cpc' .* tuple", {"objectives": "cpc"}),
        ("seeds=3 .* tuple", {"seeds": 3}),
        ("precision='16'", {"seeds": (0, 1), "precision": "16"}),
        (r"seeds=\(1, 1\) .* twice", {"seeds": (1, 1)}),
        ("seed=-1", {"seeds": (-1,)}),
        ("seed=0.5", {"seeds": (0.5,)}),
        ("precision '64'", {"precision": "64"}),
        ("epochs or iterations", {"iterations": 9, "epochs": 1}),
        ("did you mean 'knn'", {"monitor": "knm"}),
        ("depth=34", {"depth": 34, "model": "simclr"}),
        ("loss option critic=", {"loss": {"critic": object()}}),
        ("epochs=1.5", {"epochs": 1.5}),
        ("iterations=0", {"iterations": 0}),
        ("batch_size=1", {"batch_size": 1}),
        ("minutes=inf", {"minutes": float("inf")}),
        ("minutes='a'", {"minutes": "a"}),
        ("learning_rate=0.0", {"learning_rate": 0.0}),
        ("learning_rate=True", {"learning_rate": True}),
        ("evaluate_every=-1", {"evaluate_every": -1}),
    ):
        refused(message, Settings, **{"model": "shallow", **changed})


@given(
    st.sampled_from(("shallow", "amdim")),
    st.lists(st.sampled_from(OBJECTIVES), min_size=1, unique=True),
    st.lists(st.integers(0, 2**32), min_size=1, max_size=4, unique=True),
    st.floats(1e-6, 1e6) | st.none(),
    st.dictionaries(st.text(max_size=5), st.floats(-9, 9) | st.booleans() | st.text(max_size=3)),
    st.sampled_from(({"iterations": 7}, {"epochs": 2}, {})),
)
def test_there_and_back_through_json(model, objectives, seeds, minutes, loss, length):
    chosen = Settings(model, tuple(objectives), tuple(seeds), minutes=minutes, loss=loss, **length)
    assert Settings.from_dict(json.loads(json.dumps(chosen.as_dict()))) == chosen
