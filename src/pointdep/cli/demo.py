"""``pointdep demo``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.audit import check_rows
from pointdep.cli.show import flags_as_json, found_as_json, print_json, print_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointdep.auditing.result import Audit
    from pointdep.data.images.datasets import DigitHalves

Output = Annotated[Path, typer.Option("--output", "-o", help="The report page, .html.")]

_LOWEST = 10
_SHADES = " .:-=+*#%@"


def demo(
    output: Output = Path("pointdep-demo.html"),
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Try it on digit images that are already here.

    The upper halves of scikit-learn's digit images are paired with their lower halves, but some
    pairs are swapped on purpose. An audit finds them: swapped halves belong together less than
    chance. It ends with a report page, which shows the halves as pictures.
    """
    from pointdep.auditing.audit import audit
    from pointdep.auditing.report.page import check_page
    from pointdep.data.images import digit_halves

    check_page(output)
    data = digit_halves(swapped=0.05, seed=seed)
    if not json:
        print(
            f"{len(data.x)} digit images cut into an upper half (x) and a lower half (y); in "
            f"{int(data.swapped.sum())} pairs the lower half is another image's.\n"
        )
    result = Swaps(data, audit(data.x, data.y, random_state=seed, progress=not quiet))
    write_page(result, output)
    if json:
        print_json("demo", as_json(result) | {"output": str(output)})
    else:
        print_result(result)
        print(
            f"\nOpen {output} in a browser to see every pair, the halves as pictures.\n\n"
            "Your own data:  pointdep audit x.npy y.npy -o report.html\n"
            "                pointdep mi x.npy y.npy"
        )


@dataclass(frozen=True, eq=False)
class Swaps:
    """The data with its planted swaps, and the audit that is to find them."""

    data: DigitHalves
    audit: Audit

    @property
    def planted(self) -> int:
        return int(self.data.swapped.sum())

    @property
    def pmi(self) -> NDArray[np.float32]:
        """(rows,) out of fold."""
        return self.audit.table["pmi"].to_numpy()

    @property
    def order(self) -> NDArray[np.int64]:
        """(rows,) row numbers, lowest PMI first."""
        return self.pmi.argsort(kind="stable")

    @property
    def caught(self) -> int:
        """Planted swaps among as many pairs of lowest PMI."""
        return int(self.data.swapped[self.order[: self.planted]].sum())

    def below_zero(self, *, swapped: bool) -> int:
        """Pairs of PMI below zero, among the planted swaps or among the others."""
        return int((self.pmi[self.data.swapped == swapped] < 0).sum())

    @property
    def suspects(self) -> tuple[int, int]:
        """How many pairs are suspects, and how many of these are planted swaps."""
        rows = self.audit.suspects["row"].to_numpy()
        return len(rows), int(self.data.swapped[rows].sum())


def as_json(result: Swaps) -> dict[str, Any]:
    """The result for a program."""
    found, pmi, swapped = result.audit, result.pmi, result.data.swapped
    planted_below = result.below_zero(swapped=True)
    suspects, planted_suspects = result.suspects
    return {
        **found_as_json(found.mutual_information),
        "folds": found.folds,
        "flags": flags_as_json(found.flags),
        "planted": result.planted,
        "planted_among_lowest": result.caught,
        "below_zero": planted_below + result.below_zero(swapped=False),
        "planted_below_zero": planted_below,
        "suspects": suspects,
        "planted_suspects": planted_suspects,
        "lowest": [
            {"row": int(row), "pmi": float(pmi[row]), "swapped": bool(swapped[row])}
            for row in result.order[:_LOWEST]
        ],
    }


def write_page(result: Swaps, output: Path) -> None:
    """The report page, with every half in it as a picture."""
    upper, lower = (side.reshape(-1, 4, 8) for side in (result.data.x, result.data.y))
    title = "Which digit halves were swapped?"
    result.audit.to_html(output, upper, lower, title, media=len(upper), progress=False)


def print_result(result: Swaps) -> None:
    """The result for a person."""
    found = result.audit.mutual_information
    print_rows({"mutual information": str(found), **check_rows(result.audit)})
    _print_lowest(result.data, result.pmi, result.order)
    suspects, planted_suspects = result.suspects
    print(
        f"\n{result.caught} of the {result.planted} planted swaps are among the {result.planted} "
        f"pairs of lowest PMI; {result.below_zero(swapped=True)} have a PMI below zero,\nand so "
        f"have {result.below_zero(swapped=False)} of the {len(result.data.x) - result.planted} "
        f"pairs that were left alone. The audit names {suspects} suspects,\n"
        f"{planted_suspects} of them planted swaps."
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
