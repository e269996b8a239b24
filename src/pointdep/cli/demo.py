"""``pointdep demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pointdep.cli import options
from pointdep.cli.show import estimate_as_json, print_estimate, print_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LOWEST = 10
_SHADES = " .:-=+*#%@"


def demo(
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Try it on data that is already here: which halves of digit images were swapped?

    The upper halves of scikit-learn's digit images are paired with their lower halves, but some
    pairs are swapped on purpose. PMI finds them: swapped halves belong together less than chance.
    """
    import numpy as np

    from pointdep.data.digits import digit_halves
    from pointdep.estimator import PointwiseDependency

    data = digit_halves(swapped=0.05, seed=seed)
    planted = int(data.swapped.sum())
    if not json:
        print(
            f"{len(data.x)} digit images cut into an upper half (x) and a lower half (y); in "
            f"{planted} pairs the lower half is another image's.\n"
        )
    model = PointwiseDependency(random_state=seed, progress=not quiet).fit(data.x, data.y)
    found = model.mutual_information()
    order = np.argsort(model.oof_pmi_, kind="stable")
    caught = int(data.swapped[order[:planted]].sum())
    below = model.oof_pmi_ < 0
    if json:
        print_json(
            "demo",
            {
                **estimate_as_json(model, found),
                "planted": planted,
                "planted_among_lowest": caught,
                "below_zero": int(below.sum()),
                "planted_below_zero": int((below & data.swapped).sum()),
                "lowest": [
                    {
                        "row": int(r),
                        "pmi": float(model.oof_pmi_[r]),
                        "swapped": bool(data.swapped[r]),
                    }
                    for r in order[:_LOWEST]
                ],
            },
        )
        return
    print_estimate(model, found)
    _print_lowest(data, model.oof_pmi_, order)
    print(
        f"\n{caught} of the {planted} planted swaps are among the {planted} pairs of lowest PMI; "
        f"{int((below & data.swapped).sum())} have a PMI below zero,\nand so have "
        f"{int((below & ~data.swapped).sum())} of the {int((~data.swapped).sum())} pairs that were "
        "left alone."
    )
    print(
        "\nYour own data:  pointdep mi x.npy y.npy\n"
        "                pointdep fit x.npy y.npy -o model/\n"
        "                pointdep score model/ x.npy y.npy -o pmi.csv"
    )


def _print_lowest(data: Any, pmi: NDArray[np.float32], order: NDArray[np.int64]) -> None:
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
