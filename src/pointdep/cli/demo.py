"""``pointdep demo``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pointdep.cli import options
from pointdep.cli.show import estimate_as_json, print_estimate, print_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointdep.data.digits import DigitHalves
    from pointdep.estimator import PointwiseDependency

_LOWEST = 10
_SHADES = " .:-=+*#%@"


def demo(
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Try it on digit images that are already here.

    The upper halves of scikit-learn's digit images are paired with their lower halves, but some
    pairs are swapped on purpose. PMI finds them: swapped halves belong together less than chance.
    """
    from pointdep.data.digits import digit_halves
    from pointdep.estimator import PointwiseDependency

    data = digit_halves(swapped=0.05, seed=seed)
    if not json:
        print(
            f"{len(data.x)} digit images cut into an upper half (x) and a lower half (y); in "
            f"{int(data.swapped.sum())} pairs the lower half is another image's.\n"
        )
    model = PointwiseDependency(random_state=seed, progress=not quiet).fit(data.x, data.y)
    result = Swaps(data, model)
    if json:
        print_json("demo", as_json(result))
    else:
        print_result(result)


@dataclass(frozen=True, eq=False)
class Swaps:
    """The data with its planted swaps, and the model that is to find them."""

    data: DigitHalves
    model: PointwiseDependency

    @property
    def planted(self) -> int:
        return int(self.data.swapped.sum())

    @property
    def order(self) -> NDArray[np.int64]:
        """(rows,) row numbers, lowest PMI first."""
        return self.model.oof_pmi_.argsort(kind="stable")

    @property
    def caught(self) -> int:
        """Planted swaps among as many pairs of lowest PMI."""
        return int(self.data.swapped[self.order[: self.planted]].sum())

    def below_zero(self, *, swapped: bool) -> int:
        """Pairs of PMI below zero, among the planted swaps or among the others."""
        return int((self.model.oof_pmi_[self.data.swapped == swapped] < 0).sum())


def as_json(result: Swaps) -> dict[str, Any]:
    """The result for a program."""
    model, swapped = result.model, result.data.swapped
    planted_below = result.below_zero(swapped=True)
    return {
        **estimate_as_json(model, model.mutual_information()),
        "planted": result.planted,
        "planted_among_lowest": result.caught,
        "below_zero": planted_below + result.below_zero(swapped=False),
        "planted_below_zero": planted_below,
        "lowest": [
            {"row": int(row), "pmi": float(model.oof_pmi_[row]), "swapped": bool(swapped[row])}
            for row in result.order[:_LOWEST]
        ],
    }


def print_result(result: Swaps) -> None:
    """The result for a person."""
    print_estimate(result.model, result.model.mutual_information())
    _print_lowest(result.data, result.model.oof_pmi_, result.order)
    print(
        f"\n{result.caught} of the {result.planted} planted swaps are among the {result.planted} "
        f"pairs of lowest PMI; {result.below_zero(swapped=True)} have a PMI below zero,\nand so "
        f"have {result.below_zero(swapped=False)} of the {len(result.data.x) - result.planted} "
        "pairs that were left alone."
    )
    print(
        "\nYour own data:  pointdep mi x.npy y.npy\n"
        "                pointdep fit x.npy y.npy -o model/ --oof pmi.csv"
    )


def _print_lowest(data: DigitHalves, pmi: NDArray[np.float32], order: NDArray[np.int64]) -> None:
    print(f"\nThe {_LOWEST} pairs of lowest PMI:\n\n     row      PMI  swapped on purpose")
    for row in order[:_LOWEST]:
        print(f"{row:>8} {pmi[row]:>8.2f}  {'yes' if data.swapped[row] else 'no'}")
    print("\nThe two lowest, then the two highest, as pictures:\n")
    rows = [*order[:2], *order[-2:]]
    pictures = [_picture(data.x[row], data.y[row]) for row in rows]
    for lines in zip(*pictures, strict=True):
        print("    ".join(lines).rstrip())
    print("    ".join(f"PMI {pmi[row]:<12.2f}" for row in rows).rstrip())


def _picture(upper: NDArray[np.float64], lower: NDArray[np.float64]) -> list[str]:
    """Two halves of 4 x 8 pixels as lines of characters, two wide to look square."""

    def line(pixels: NDArray[np.float64]) -> str:
        return "".join(2 * _SHADES[min(int(p * len(_SHADES) / 17), 9)] for p in pixels)

    top = [line(pixels) for pixels in upper.reshape(4, 8)]
    bottom = [line(pixels) for pixels in lower.reshape(4, 8)]
    return [*top, *bottom]
