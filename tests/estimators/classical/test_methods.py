"""The table of classical methods."""

import copy

import pytest

from pointdep import CLASSICAL
from pointdep.core import methods as core
from pointdep.errors import InputError
from pointdep.estimators.classical.catalogue import MOST_CENTRES, get_classical


def test_keys():
    assert set(CLASSICAL) == {"counting", "phsic", "ulsif", "likelihood", "ksg", "cca"}
    assert all(key == method.key for key, method in CLASSICAL.items())
    assert set(core.WITHOUT_NETWORKS) == set(CLASSICAL)
    assert not set(CLASSICAL) & set(core.METHODS)


@pytest.mark.parametrize("method", CLASSICAL.values(), ids=CLASSICAL)
def test_every_method_is_complete(method):
    assert method.name
    assert method.cannot
    assert set(method.options) == set(method.checks)
    assert (method.fit is None) != (method.local is None)
    for name in method.options:
        assert f"`{name}`" in method.equation
    assert copy.deepcopy(method).options == method.options


def test_what_each_gives():
    assert {key: method.pmi for key, method in CLASSICAL.items() if method.pmi != "nats"} == {
        "phsic": "score",
        "ksg": "none",
    }
    assert [key for key, method in CLASSICAL.items() if not method.estimates] == ["phsic"]


WRONG = [
    ("counting", "smoothing", -1),
    ("counting", "smoothing", True),
    ("counting", "correction", "miller"),
    ("phsic", "features", 0),
    ("phsic", "bandwidth", 0),
    ("ulsif", "centres", MOST_CENTRES + 1),
    ("ulsif", "bandwidth", float("nan")),
    ("ulsif", "ridge", 0.0),
    ("ulsif", "floor", 1.0),
    ("likelihood", "components", 0),
    ("likelihood", "max_components", 2.5),
    ("likelihood", "ridge", -1e-6),
    ("ksg", "k", 0),
    ("ksg", "k", None),
    ("cca", "correction", True),
]


@pytest.mark.parametrize(("key", "name", "value"), WRONG)
def test_wrong_options(key, name, value):
    with pytest.raises(InputError, match=name):
        get_classical(key, {name: value})


def test_options_are_kept_and_the_table_is_not_changed():
    assert get_classical("ksg", {"k": 3}).options == {"k": 3}
    assert get_classical("ulsif", {"ridge": 0.1}).options["bandwidth"] is None
    assert CLASSICAL["ksg"].options == {"k": 5}
    with pytest.raises(TypeError):
        CLASSICAL["ksg"].options["k"] = 3
