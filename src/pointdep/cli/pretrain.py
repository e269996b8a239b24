"""``pointdep pretrain``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.show import flags_as_json, print_json

if TYPE_CHECKING:
    from pointdep.contrastive.pretraining.record import Outcome, Pretrained
    from pointdep.contrastive.pretraining.settings import Settings
    from pointdep.data.images import ImageSet

Dataset = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help="mnist, cifar10, or digits, which needs no files.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="shallow (two RealNVP encoders, one a half of the image), amdim or simclr (ResNet). "
        "By default simclr for cifar10 and shallow for the others.",
    ),
]
Objective = Annotated[
    str,
    typer.Option(
        "--objective",
        help="cpc, pcc, drfc, variational, dm1, dm2 or rpc; several, comma separated.",
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        "--seeds", min=1, help="Runs of each objective; the shallow model trains all at once."
    ),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", help="Passes over the images; by default the paper's.")
]
Iterations = Annotated[
    int | None, typer.Option("--iterations", help="Steps in all, in the place of --epochs.")
]
Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        help="End after this training time, if the epochs are not over before; the learning rate "
        "of simclr and amdim is down by then.",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", help="Images a step, of all processes together."),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate", help="By default the protocol's, which simclr's batch size scales."
    ),
]
Precision = Annotated[
    str, typer.Option("--precision", help="32, bf16, 16, or auto: bf16 on a GPU that has it.")
]
Width = Annotated[
    int | None,
    typer.Option("--width", help="Channels: 64 in simclr, 192 in amdim, 512 units in shallow."),
]
Depth = Annotated[
    int | None,
    typer.Option("--depth", help="18 or 50 in simclr, 8 in amdim, 30 couplings in shallow."),
]
LossOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--loss-option",
        help="Option of the loss as NAME=VALUE: temperature=0.2, scale=10, alpha=0.01, "
        "negatives=cross.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Folder (or archive) with the files of the data set; by default $POINTDEP_DATA or the "
        "cache.",
    ),
]
Download = Annotated[
    bool, typer.Option("--download", help="Get the files there first, if they are missing.")
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=2, help="Use only so many images of each split.")
]
EvaluateEvery = Annotated[
    int,
    typer.Option(
        "--evaluate-every",
        min=0,
        help="Epochs, or with --iterations iterations, between two looks at the features; 0: at "
        "the end.",
    ),
]
Monitor = Annotated[
    str,
    typer.Option(
        "--monitor",
        help="What they measure before the end: knn, on some of the images, or linear, on all.",
    ),
]
CheckpointEvery = Annotated[
    float, typer.Option("--checkpoint-every", min=0.0, help="Minutes between two checkpoints.")
]
Compile = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile", help="Compile the networks; by default on a GPU, in long runs."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Folder for the encoder, the history, TensorBoard's files and the checkpoint; by "
        "default pretrain-DATASET-MODEL-OBJECTIVE. The same command goes on from what is there.",
    ),
]


def pretrain(
    dataset: Dataset,
    model: Model = None,
    objective: Objective = "cpc",
    seeds: Seeds = 1,
    epochs: Epochs = None,
    iterations: Iterations = None,
    minutes: Minutes = None,
    batch_size: BatchSize = None,
    learning_rate: Rate = None,
    precision: Precision = "auto",
    width: Width = None,
    depth: Depth = None,
    loss_option: LossOptions = None,
    data: Data = None,
    download: Download = False,
    limit: Limit = None,
    evaluate_every: EvaluateEvery = 0,
    monitor: Monitor = "knn",
    checkpoint_every: CheckpointEvery = 2.0,
    compile_networks: Compile = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    output: Output = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Pre-train an encoder on unlabelled images, and evaluate it with a linear classifier.

    For instance:  pointdep pretrain digits --epochs 20 -o run/

    On several GPUs:  torchrun --nproc-per-node 4 -m pointdep pretrain cifar10 -o run/
    """
    from pointdep.contrastive.pretraining.settings import Settings

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
    if not _first_process():
        return
    if json:
        print_json("pretrain", _as_json(images, settings, done))
    else:
        _print(images, done)


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
    from dataclasses import replace

    from pointdep.contrastive.pretraining.recipes import check_loss_options
    from pointdep.contrastive.pretraining.run import pretrain as train

    check_loss_options(settings)
    if settings.model == "shallow" or len(settings.runs) == 1:
        return [train(images, settings, folder=folder, **how)]
    return [
        train(
            images,
            replace(settings, objectives=(objective,), seeds=(seed,)),
            folder=folder / f"{objective}-{seed}",
            **how,
        )
        for objective, seed in settings.runs
    ]


def _first_process() -> bool:
    from pointdep.contrastive.distributed import world

    return world()[0] == 0


def _as_json(images: ImageSet, settings: Settings, done: list[Pretrained]) -> dict[str, Any]:
    from pointdep.contrastive.pretraining.record import about_images

    return {
        "data": about_images(images),
        "settings": settings.as_dict(),
        **done[0].where,
        "runs": [asdict(outcome) for run in done for outcome in run.outcomes],
        "flags": flags_as_json([flag for run in done for flag in run.flags]),
        "written": [str(run.folder) for run in done],
    }


def _print(images: ImageSet, done: list[Pretrained]) -> None:
    print(f"{images.source}: {len(images.train)} training and {len(images.test)} test images")
    heads = "objective", "seed", "epochs", "minutes", "loss", "neighbours", "linear"
    print("  ".join(f"{head:>{max(9, len(head))}}" for head in heads))
    for run in done:
        for outcome in run.outcomes:
            cells = _cells(outcome)
            print("  ".join(f"{c:>{max(9, len(h))}}" for c, h in zip(cells, heads, strict=True)))
    print("neighbours, linear: accuracy of 20 nearest neighbours and of a linear classifier on")
    print("frozen features, on the test images")
    for run in done:
        print(f"encoder: {run.folder}/encoder (pointdep.contrastive.load_encoder)")


def _cells(outcome: Outcome) -> tuple[str, ...]:
    shares = (outcome.knn, outcome.linear)
    return (
        outcome.objective,
        str(outcome.seed),
        f"{outcome.epochs:.3g}",
        f"{outcome.seconds / 60:.1f}",
        "diverged" if outcome.loss is None else f"{outcome.loss:.4f}",
        *("" if share is None else f"{100 * share:.1f} %" for share in shares),
    )
