"""``pointdep demo``."""

from pathlib import Path
from typing import Any

from pointdep.cli import options
from pointdep.cli.audit import check_rows
from pointdep.cli.show import (
    encoders_as_json,
    flags_as_json,
    found_as_json,
    print_json,
    print_rows,
)

_LOWEST = 10
_SHADES = " .:-=+*#%@"


@options.explained
def demo(
    output: Path = Path("pointdep-demo.html"),
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Try it on digit images that are already here.

    The upper halves of scikit-learn's digit images are paired with their lower halves, but some
    pairs are swapped on purpose. An audit finds them: swapped halves belong together less than
    chance. It ends with a report page, which shows the halves as pictures.

    Options
    -------
    output: The report page, .html.
    """
    from pointdep.auditing.audit import audit
    from pointdep.auditing.report.page import SUFFIXES
    from pointdep.data.images import digit_halves
    from pointdep.data.writers import check_writable

    check_writable(output, SUFFIXES)
    data = digit_halves(swapped=0.05, seed=seed)
    planted = int(data.swapped.sum())
    if not json:
        print(
            f"{len(data.x)} digit images cut into an upper half (x) and a lower half (y); in "
            f"{planted} pairs the lower half is another image's.\n"
        )
    found = audit(data.x, data.y, random_state=seed, progress=not quiet)
    upper, lower = (side.reshape(-1, 4, 8) for side in (data.x, data.y))
    title = "Which digit halves were swapped?"
    found.to_html(output, upper, lower, title, media=len(upper), progress=False)
    pmi = found.table["pmi"].to_numpy()
    order = pmi.argsort(kind="stable")
    suspects = found.suspects["row"].to_numpy()
    counts = {
        "planted": planted,
        "planted_among_lowest": int(data.swapped[order[:planted]].sum()),
        "below_zero": int((pmi < 0).sum()),
        "planted_below_zero": int((pmi[data.swapped] < 0).sum()),
        "suspects": len(suspects),
        "planted_suspects": int(data.swapped[suspects].sum()),
    }
    if not json:
        print_rows({"mutual information": str(found.mutual_information), **check_rows(found)})
        _print_lowest(data, pmi, order)
        _print_counts(counts, len(pmi))
        print(
            f"\nOpen {output} in a browser to see every pair, the halves as pictures.\n\n"
            "Your own data:  pointdep audit x.npy y.npy -o report.html\n"
            "                pointdep mi x.npy y.npy"
        )
        return
    lowest = [
        {"row": int(row), "pmi": float(pmi[row]), "swapped": bool(data.swapped[row])}
        for row in order[:_LOWEST]
    ]
    told = {"folds": found.folds, "flags": flags_as_json(found.flags), **counts, "lowest": lowest}
    told |= encoders_as_json(found.encoders, found.left_out)
    print_json("demo", {**found_as_json(found.mutual_information), **told, "output": output})


def _print_counts(counts: dict[str, int], rows: int) -> None:
    planted, below = counts["planted"], counts["planted_below_zero"]
    print(
        f"\n{counts['planted_among_lowest']} of the {planted} planted swaps are among the "
        f"{planted} pairs of lowest PMI; {below} have a PMI below zero,\nand so "
        f"have {counts['below_zero'] - below} of the {rows - planted} "
        f"pairs that were left alone. The audit names {counts['suspects']} suspects,\n"
        f"{counts['planted_suspects']} of them planted swaps."
    )


def _print_lowest(data: Any, pmi: Any, order: Any) -> None:
    print(f"\nThe {_LOWEST} pairs of lowest PMI:\n\n     row      PMI  swapped on purpose")
    for row in order[:_LOWEST]:
        print(f"{row:>8} {pmi[row]:>8.2f}  {'yes' if data.swapped[row] else 'no'}")
    print("\nThe two lowest, then the two highest, as pictures:\n")
    rows = [*order[:2], *order[-2:]]
    for lines in zip(*[_picture(data.x[row], data.y[row]) for row in rows], strict=True):
        print("    ".join(lines).rstrip())
    print("    ".join(f"PMI {pmi[row]:<12.2f}" for row in rows).rstrip())


def _picture(upper: Any, lower: Any) -> list[str]:
    """Two halves of 4 x 8 pixels as lines of characters, two wide to look square."""
    return [
        "".join(2 * _SHADES[min(int(p * len(_SHADES) / 17), 9)] for p in pixels)
        for half in (upper, lower)
        for pixels in half.reshape(4, 8)
    ]
