"""What follows from a plan: stream, move to a GPU or a cluster, cut a search into parts."""

from __future__ import annotations

from collections.abc import Mapping

from pointdep.planning.shape import IN_MEMORY, Shape

_RAY_START = 20.0  # seconds, measured by benchmarks/ray_score.py
_WORKERS = 8
_LONG_SCORE, _LONG_FIT = 600.0, 3600.0
_LARGE_MEMORY = 32.0  # GiB


def advice(
    shape: Shape, device: str, costs: Mapping[str, tuple[float, float, float]]
) -> tuple[str, ...]:
    """costs: seconds, GiB, and GiB of the GPU, of each command."""
    return (
        _streaming(shape),
        _scoring(costs["score"][0]),
        *_fitting(device, costs["fit"][0]),
        *_searching(*costs["retrieve"][1:]),
    )


def _streaming(shape: Shape) -> str:
    most = f"{IN_MEMORY // shape.width:,} rows of {shape.width} columns"
    if shape.streamed:
        return (
            f"A fit of more than {most} reads them as it needs them: keep them in memory-mapped "
            ".npy files or folders of shards, and its memory grows by some bytes a row alone "
            "(docs/large.md)."
        )
    return f"The rows are held in memory; with more than {most} a fit streams them (docs/large.md)."


def _scoring(seconds: float) -> str:
    if seconds < _LONG_SCORE:
        return "Scoring here is soon done: a cluster would not pay."
    apart = _RAY_START + seconds / _WORKERS
    return (
        f"Scoring pays on a cluster: with {_WORKERS} machines like this one about "
        f"{duration(apart)} (pointdep score --engine ray, docs/cluster.md)."
    )


def _fitting(device: str, seconds: float) -> tuple[str, ...]:
    if seconds < _LONG_FIT:
        return ()
    if device == "cpu":
        return ("The fit is long for a CPU: take a GPU, fewer folds, or a part of the rows.",)
    return (
        "The fit is long for one GPU: several share it (docs/distributed.md), or fit on a part of "
        "the rows and score them all.",
    )


def _searching(gib: float, gpu_gib: float) -> tuple[str, ...]:
    if max(gib, gpu_gib) < _LARGE_MEMORY:
        return ()
    amount = size(gib) + (f", and {size(gpu_gib)} of the GPU" if gpu_gib else "")
    return (
        f"A search holds all candidates in memory ({amount}): cut them into parts, and keep "
        "the best of all parts.",
    )


def duration(seconds: float) -> str:
    """In words, as exactly as a plan deserves."""
    for size, unit in ((31_557_600, "years"), (86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            amount = seconds / size
            return f"{amount:,.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def size(gib: float) -> str:
    """Memory in words, as exactly as a plan deserves."""
    if gib >= 10_000:
        return f"{gib / 1024:,.0f} TiB"
    return f"{gib:,.0f} GiB" if gib >= 10 else f"{gib:.1f} GiB"
