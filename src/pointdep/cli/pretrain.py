"""``pointdep pretrain``."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from pointdep.cli import options
from pointdep.cli.show import flags_as_json, print_json
from pointdep.contrastive.pretraining.protocols import Settings

if TYPE_CHECKING:
    from pointdep.contrastive.pretraining.pretrained import Pretrained
    from pointdep.data.images import ImageSet


_KINDS = options.KINDS | {
    "dataset": Annotated[str, Argument(metavar="DATASET")],
    "seeds": Annotated[int, Option(min=1)],
    "evaluate_every": Annotated[int, Option(min=0)],
}
_DEFAULTS: options.Given = {"dataset": ..., "objective": "cpc", "seeds": 1, "precision": "auto"}


@options.takes(_KINDS, options.SHARED, **_DEFAULTS, evaluate_every=0, monitor="knn")
def pretrain(given: options.Given) -> None:
    """Pre-train an encoder on unlabelled images, and evaluate it with a linear classifier.

    For instance:  pointdep pretrain digits --epochs 20 -o run/

    On several GPUs:  torchrun --nproc-per-node 4 -m pointdep pretrain cifar10 -o run/

    Options
    -------
    dataset: mnist, cifar10 or digits.
    model: shallow, amdim or simclr; by default simclr for cifar10, else shallow.
    objective: cpc, pcc, drfc, variational, dm1, dm2, rpc; several, with commas.
    seeds: Runs per objective; shallow trains them at once.
    epochs: Passes over the images; as in the paper if not given.
    iterations: Steps in total, instead of --epochs.
    minutes: Training time after which a run ends.
    batch_size: Images per step, of all processes together.
    learning_rate: simclr's default grows with the batch size.
    precision: 32, bf16, 16, or auto: bf16 on GPUs that have it.
    width: Channels: simclr 64, amdim 192; shallow 512 units.
    depth: simclr 18 or 50, amdim 8, shallow 30 couplings.
    loss_option: Option of the loss, as temperature=0.2.
    data: Folder or archive of images; by default $POINTDEP_DATA or the cache.
    download: Fetch the files that are missing.
    limit: Use only this many images of each split.
    evaluate_every: Epochs (or iterations) between evaluations; 0: at the end.
    monitor: What these measure before the end: knn or linear.
    checkpoint_every: Minutes between two checkpoints.
    compile_networks: By default on a GPU, in long runs.
    output: Folder of the run, which the same command continues.
    """
    dataset, seed = given["dataset"], given["seed"]
    named = {field.name: given[field.name] for field in fields(Settings) if field.name in given}
    named |= {
        "model": given["model"] or ("simclr" if dataset == "cifar10" else "shallow"),
        "objectives": options.parse_names("--objective", given["objective"]),
        "seeds": tuple(range(seed, seed + given["seeds"])),
        "loss": options.parse_options(given["loss_option"], "--loss-option") or {},
    }
    settings = Settings(**named)
    files = given["data"], given["download"], given["limit"]
    images = read_images(dataset, *files, given["quiet"])
    parts = "pretrain", dataset, settings.model, *settings.objectives
    folder = given["output"] or Path("-".join(parts))
    done = _train_all(images, settings, folder, **training_options(given))
    from pointdep.contrastive.distributed import world

    if world()[0] == 0:
        _tell(images, settings, done, given["json"])


def training_options(given: options.Given) -> options.Given:
    """How networks are trained, as `pointdep.contrastive.pretrain` takes it."""
    how = {name: given[name] for name in ("device", "compile_networks")}
    every, progress = 60.0 * given["checkpoint_every"], not given["quiet"]
    return {**how, "checkpoint_every": every, "progress": progress}


def read_images(
    dataset: str, data: Path | None, download: bool, limit: int | None, quiet: bool
) -> ImageSet:
    """The images, or the first `limit` of each split."""
    from pointdep.data.images import load_images
    from pointdep.fitting.progress import show

    with show(f"reading {dataset}", enabled=not quiet, left="about") as shown:
        read = partial(shown.update, detail="read")
        images = load_images(dataset, data, download=download, progress=read)
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
