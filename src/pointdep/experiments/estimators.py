"""The estimators that can be compared, by name: `METHOD`, `METHOD:CRITIC`, or a classical one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pointdep.errors import unknown_name

if TYPE_CHECKING:
    from pointdep.inference.mutual_information import MIEstimate


class Estimator(Protocol):
    """What a comparison asks of an estimator; InputError says that it has no such answer."""

    def fit(self, X: Any, Y: Any) -> Any: ...

    def mutual_information(self, *, confidence: float) -> MIEstimate: ...

    def pmi(self, X: Any, Y: Any) -> Any: ...


def check_estimator(name: str) -> None:
    """InputError for a name that `make_estimator` does not know; nothing is built."""
    from pointdep.core.critics import CRITICS
    from pointdep.core.methods import METHODS
    from pointdep.estimators.classical.catalogue import CLASSICAL

    method, colon, critic = name.partition(":")
    if method not in METHODS and (colon or method not in CLASSICAL):
        raise unknown_name("estimator", method, METHODS if colon else (*METHODS, *CLASSICAL))
    if colon and critic not in CRITICS:
        raise unknown_name(f"critic of {name!r}:", critic, CRITICS)


def make_estimator(name: str, *, seed: int, device: str = "auto") -> Estimator:
    """The estimator of this name with its default settings, not fitted."""
    from pointdep.estimators.classical.catalogue import CLASSICAL

    check_estimator(name)
    method, _, critic = name.partition(":")
    common: dict[str, Any] = {"method": method, "random_state": seed, "progress": False}
    if method in CLASSICAL:
        from pointdep.estimators.classical.estimator import ClassicalDependency

        classical: Estimator = ClassicalDependency(**common)
        return classical
    from pointdep.estimators.pointwise import PointwiseDependency

    if critic:
        common["critic"] = critic
    return PointwiseDependency(device=device, **common)


def gives_nats(name: str) -> bool:
    """Whether its PMI is log r, rather than a score that only ranks pairs."""
    from pointdep.estimators.classical.catalogue import CLASSICAL

    return name not in CLASSICAL or CLASSICAL[name].pmi == "nats"
