"""``pointdep pretrain``."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.show import flags_as_json, print_json
from pointdep.contrastive.pretraining.protocols import OBJECTIVES, Settings

if TYPE_CHECKING:
    from pointdep.contrastive.pretraining.pretrained import Pretrained
    from pointdep.data.images import ImageSet


# Names of options are those of the parameters; `reproduce figure2` and `simclr` share some.
_Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="mnist, cifar10 or digits.")]
_Model = Annotated[
    str | None,
    typer.Option(help="shallow, amdim or simclr; by default simclr for cifar10, else shallow."),
]
_Objective = Annotated[str, typer.Option(help=f"{', '.join(OBJECTIVES)}; several, with commas.")]
_Seeds = Annotated[
    int, typer.Option(min=1, help="Runs per objective; shallow trains them at once.")
]
_Epochs = Annotated[
    int | None, typer.Option(help="Passes over the images; as in the paper if not given.")
]
_Iterations = Annotated[int | None, typer.Option(help="Steps in total, instead of --epochs.")]
_Minutes = Annotated[float | None, typer.Option(help="Training time after which a run ends.")]
BatchSize = Annotated[int | None, typer.Option(help="Images per step, of all processes together.")]
Rate = Annotated[float | None, typer.Option(help="simclr's default grows with the batch size.")]
_Precision = Annotated[str, typer.Option(help="32, bf16, 16, or auto: bf16 on GPUs that have it.")]
Width = Annotated[
    int | None, typer.Option(help="Channels: simclr 64, amdim 192; shallow 512 units.")
]
Depth = Annotated[int | None, typer.Option(help="simclr 18 or 50, amdim 8, shallow 30 couplings.")]
_Loss = Annotated[list[str] | None, typer.Option(help="Option of the loss, as temperature=0.2.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder or archive of images; by default $POINTDEP_DATA or the cache."),
]
Download = Annotated[bool, typer.Option("--download", help="Fetch the files that are missing.")]
Limit = Annotated[int | None, typer.Option(min=2, help="Use only this many images of each split.")]
_EvaluateEvery = Annotated[
    int, typer.Option(min=0, help="Epochs (or iterations) between evaluations; 0: at the end.")
]
_Monitor = Annotated[str, typer.Option(help="What these measure before the end: knn or linear.")]
CheckpointEvery = Annotated[float, typer.Option(min=0.0, help="Minutes between two checkpoints.")]
Compile = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="By default on a GPU, in long runs.")
]
_Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Folder of the run, which the same command continues."),
]


def pretrain(
    dataset: _Dataset,
    model: _Model = None,
    objective: _Objective = "cpc",
    seeds: _Seeds = 1,
    epochs: _Epochs = None,
    iterations: _Iterations = None,
    minutes: _Minutes = None,
    batch_size: BatchSize = None,
    learning_rate: Rate = None,
    precision: _Precision = "auto",
    width: Width = None,
    depth: Depth = None,
    loss_option: _Loss = None,
    data: Data = None,
    download: Download = False,
    limit: Limit = None,
    evaluate_every: _EvaluateEvery = 0,
    monitor: _Monitor = "knn",
    checkpoint_every: CheckpointEvery = 2.0,
    compile_networks: Compile = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    output: _Output = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Pre-train an encoder on unlabelled images, and evaluate it with a linear classifier.

    For instance:  pointdep pretrain digits --epochs 20 -o run/

    On several GPUs:  torchrun --nproc-per-node 4 -m pointdep pretrain cifar10 -o run/
    """
    settings = Settings(
        model=model or ("simclr" if dataset == "cifar10" else "shallow"),
        objectives=options.parse_names("--objective", objective),
        seeds=tuple(range(seed, seed + seeds)),
        epochs=epochs,
        iterations=iterations,
        minutes=minutes,
        batch_size=batch_size,
        learning_rate=learning_rate,
        width=width,
        depth=depth,
        precision=precision,
        evaluate_every=evaluate_every,
        monitor=monitor,
        loss=options.parse_options(loss_option, "--loss-option") or {},
    )
    images = read_images(dataset, data, download, limit, quiet)
    folder = output or Path("-".join(("pretrain", dataset, settings.model, *settings.objectives)))
    done = _train_all(
        images,
        settings,
        folder,
        device=device,
        compile_networks=compile_networks,
        checkpoint_every=60.0 * checkpoint_every,
        progress=not quiet,
    )
    from pointdep.contrastive.distributed import world

    if world()[0] == 0:
        _tell(images, settings, done, json)


def read_images(
    dataset: str, data: Path | None, download: bool, limit: int | None, quiet: bool
) -> ImageSet:
    """The images, or the first `limit` of each split."""
    from pointdep.data.images import load_images
    from pointdep.fitting.progress import show

    with show(f"reading {dataset}", enabled=not quiet, left="about") as shown:
        images = load_images(
            dataset,
            data,
            download=download,
            progress=lambda done, total: shown.update(done, total, "read"),
        )
    if limit is None:
        return images
    return images.head(min(limit, len(images.train)), min(limit, len(images.test)))


def _train_all(images: ImageSet, settings: Settings, folder: Path, **how: Any) -> list[Pretrained]:
    """The shallow model's runs at once, the others' one after another, each in its own folder."""
    from pointdep.contrastive.pretraining.pretrained import pretrain as train
    from pointdep.contrastive.pretraining.recipes import check_loss_options

    check_loss_options(settings)
    if settings.model == "shallow" or len(settings.runs) == 1:
        return [train(images, settings, folder=folder, **how)]
    done = []
    for objective, seed in settings.runs:
        one = replace(settings, objectives=(objective,), seeds=(seed,))
        done.append(train(images, one, folder=folder / f"{objective}-{seed}", **how))
    return done


def _tell(images: ImageSet, settings: Settings, done: list[Pretrained], json: bool) -> None:
    from pointdep.contrastive.pretraining.pretrained import about_images

    outcomes = [outcome for run in done for outcome in run.outcomes]
    if json:
        about = {
            "data": about_images(images),
            "settings": settings.as_dict(),
            **done[0].where,
            "runs": [asdict(outcome) for outcome in outcomes],
            "flags": flags_as_json([flag for run in done for flag in run.flags]),
            "written": [str(run.folder) for run in done],
        }
        print_json("pretrain", about)
        return
    print(f"{images.source}: {len(images.train)} training and {len(images.test)} test images")
    heads = "objective", "seed", "epochs", "minutes", "loss", "neighbours", "linear"
    lines: list[tuple[str, ...]] = [heads]
    for outcome in outcomes:
        loss = "diverged" if outcome.loss is None else f"{outcome.loss:.4f}"
        shares = (outcome.knn, outcome.linear)
        told = ("" if share is None else f"{100 * share:.1f} %" for share in shares)
        times = f"{outcome.epochs:.3g}", f"{outcome.seconds / 60:.1f}"
        lines.append((outcome.objective, str(outcome.seed), *times, loss, *told))
    for line in lines:
        print("  ".join(f"{c:>{max(9, len(h))}}" for c, h in zip(line, heads, strict=True)))
    print("neighbours, linear: accuracy of 20 nearest neighbours and of a linear classifier on")
    print("frozen features, on the test images")
    for run in done:
        print(f"encoder: {run.folder}/encoder (pointdep.contrastive.load_encoder)")
