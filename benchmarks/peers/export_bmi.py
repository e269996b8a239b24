"""Write the tasks of the bmi benchmark as arrays that every environment can read.

Runs in bmi's own environment::

    envs/bmi/bin/python export_bmi.py [--stacked FOLDER]
    envs/bmi/bin/python export_bmi.py --version 2 --seeds 0 1 2 [--stacked FOLDER]

Version 1 is the 40 tasks of `bmi.benchmark`. For each task and seed,
`data/<task>/rows10000_seed<k>.npz` holds `x`, `y` (float32) and `mi`, the exact mutual information
in nats; `data/tasks.json` lists the tasks. A run on fewer rows takes the first rows of the same
arrays. With `--stacked`, one file per seed holds every task's arrays under the names `<task>|x`,
`<task>|y` and `<task>|mi`.

Version 2 is the 26 tasks of bmi's `workflows/benchmark/v2/config.py`, mixtures among them, with
5,000 rows. One file per seed, `data/v2/bmi_v2_seed<k>.npz` or in the folder of `--stacked`, holds
the same names and `<task>|pmi`, the exact pointwise mutual information of every row. The
mutual information of a mixture is bmi's own Monte Carlo value from 100,000 pairs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parent / "data"
ROWS = 10_000
ROWS_2 = 5_000


def sample(task: Any, seed: int, rows: int = ROWS) -> dict[str, Any]:
    """`rows` pairs of one task, with the exact mutual information."""
    x, y = task.sample(rows, seed=seed)
    return {
        "x": np.asarray(x, dtype=np.float32),
        "y": np.asarray(y, dtype=np.float32),
        "mi": np.float64(task.mutual_information),
    }


def describe(name: str, task: Any) -> dict[str, Any]:
    """What `tasks.json` says of one task."""
    return {
        "name": name,
        "dim_x": int(task.dim_x),
        "dim_y": int(task.dim_y),
        "mi": float(task.mutual_information),
    }


def version_2() -> dict[str, Any]:
    """The tasks of version 2 by name, rescaled as bmi's workflow does."""
    from bmi.benchmark import tasks  # type: ignore[import-not-found]
    from bmi.benchmark.tasks import (  # type: ignore[import-not-found]
        additive_noise,
        asinh,
        bivariate_normal,
        embeddings,
        mixtures,
        multinormal,
        normal_cdf,
        spiral,
        student,
    )

    uniform = normal_cdf.transform_normal_cdf_task(bivariate_normal.task_bivariate_normal(0.75))
    heavy = [student.task_student_identity(d, d, df) for d, df in ((1, 1), (2, 1), (3, 2), (5, 2))]
    unscaled = [
        additive_noise.task_additive_noise(epsilon=0.75),
        mixtures.task_x(),
        mixtures.task_ai(),
        embeddings.transform_swissroll_task(uniform, task_name="Swiss roll 2 x 1"),
        mixtures.task_waves(),
        mixtures.task_galaxy(),
        *(
            mixtures.task_concentric_multinormal(dim_x=dim, n_components=count)
            for dim, count in ((3, 5), (5, 5), (3, 10), (5, 10), (25, 5))
        ),
        *(multinormal.task_multinormal_dense(dim, dim) for dim in (5, 25, 50)),
        *(multinormal.task_multinormal_2pair(dim, dim) for dim in (5, 25)),
        *(
            mixtures.task_multinormal_sparse_w_inliers(dim, dim, inlier_fraction=fraction)
            for fraction in (0.2, 0.5)
            for dim in (5, 25)
        ),
        *(asinh.transform_asinh_task(task) for task in heavy),
        *(spiral.transform_spiral_task(multinormal.task_multinormal_2pair(d, d)) for d in (3, 5)),
    ]
    # Version 2 standardizes the columns of every sample.
    return {task.id: tasks.transform_rescale(task, task_id=task.id) for task in unscaled}


def exact_pmi(task: Any, seed: int, rows: int) -> Any:
    """PMI of the rows that `task.sample(rows, seed)` gives.

    Transforms of x alone and of y alone leave it unchanged, and the sampler below them draws
    the same rows from the same seed; so the density is evaluated before all transforms.
    """
    from bmi import samplers  # type: ignore[import-not-found]
    from bmi.samplers import bmm  # type: ignore[import-not-found]

    sampler = task.sampler
    while isinstance(sampler, samplers.TransformedSampler):
        sampler = sampler._base_sampler
    x, y = sampler.sample(rows, seed)
    if isinstance(sampler, samplers.AdditiveUniformSampler):
        half = sampler._epsilon
        y = np.asarray(y, dtype=np.float64)[:, 0]
        # p(y | x) is 1 / (2 half), and p(y) is that times the length of [0, 1] within half of y.
        return -np.log(np.minimum(1, y + half) - np.maximum(0, y - half))
    sizes = {"dim_x": sampler.dim_x, "dim_y": sampler.dim_y}
    if isinstance(sampler, bmm.BMMSampler):
        distribution = sampler._dist
    elif isinstance(sampler, samplers.SplitStudentT):
        distribution = bmm.MultivariateStudentDistribution(
            **sizes, df=sampler.df, dispersion=sampler._dispersion
        )
    else:
        normal = getattr(sampler, "_sampler", sampler)  # the bivariate normal wraps the general one
        distribution = bmm.MultivariateNormalDistribution(**sizes, covariance=normal._covariance)
    return distribution.pmi(x, y)


def export_2(seeds: list[int], folder: Path) -> None:
    """Write version 2, one file per seed."""
    tasks = version_2()
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        stacked: dict[str, Any] = {}
        for name, task in tasks.items():
            arrays = sample(task, seed, ROWS_2) | {"pmi": exact_pmi(task, seed, ROWS_2)}
            stacked |= {f"{name}|{key}": np.float32(value) for key, value in arrays.items()}
        np.savez_compressed(folder / f"bmi_v2_seed{seed}.npz", **stacked)


def main() -> None:
    """Write all tasks for all seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", type=int, choices=[1, 2], default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--stacked", type=Path, help="folder for one file per seed")
    args = parser.parse_args()
    if args.version == 2:
        export_2(args.seeds, args.stacked or DATA / "v2")
        return

    from bmi.benchmark import BENCHMARK_TASKS

    for seed in args.seeds:
        stacked: dict[str, Any] = {}
        for name, task in BENCHMARK_TASKS.items():
            arrays = sample(task, seed)
            folder = DATA / name
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / f"rows{ROWS}_seed{seed}.npz", **arrays)
            stacked |= {f"{name}|{key}": np.float32(value) for key, value in arrays.items()}
        if args.stacked is not None:
            args.stacked.mkdir(parents=True, exist_ok=True)
            np.savez(args.stacked / f"bmi_seed{seed}.npz", **stacked)
    tasks = [describe(name, task) for name, task in BENCHMARK_TASKS.items()]
    (DATA / "tasks.json").write_text(json.dumps(tasks, indent=1) + "\n")


if __name__ == "__main__":
    main()
