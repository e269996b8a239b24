"""Pre-train, evaluate, freeze: `pretrain`, and what a finished run leaves."""

import hashlib
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pointdep
from pointdep.contrastive.evaluation import features, knn_accuracy, linear_evaluation
from pointdep.contrastive.pretraining.deep import SimCLR
from pointdep.contrastive.pretraining.loop import STATE, Entry, Training, make_fabric, share_norms
from pointdep.contrastive.pretraining.protocols import Settings
from pointdep.contrastive.pretraining.recipes import Recipe, make_recipe, mix
from pointdep.data import storage
from pointdep.data.atomic import whole_file
from pointdep.data.images import ImageSet
from pointdep.errors import (
    DivergedError,
    FitWarning,
    Flag,
    InputError,
    ModelFileError,
    require_whole,
)
from pointdep.fitting.progress import show
from pointdep.fitting.rendezvous import pick_device, process_count
from pointdep.fitting.state import remove_state

RUN, ENCODER = "run.json", "encoder"
_KIND = "encoder"
_BATCH = 500
_MONITOR_TRAIN, _MONITOR_TEST = 10_000, 2_000  # images that the monitor looks at
_REFERENCE = 2_000  # images over which a read-out is normalised
_COMPILED_STEPS = 5_000  # for fewer, compiling takes longer than it saves


class FrozenEncoder:
    """A trained encoder: images in, features out. `load_encoder` reads a saved one.

    Attributes
    ----------
    recipe : torch.nn.Module
        The trained networks with their loss.
    settings : Settings
        How they were trained.
    shape : tuple of int
        Of an image, (channels, height, width).
    classes : tuple of str
        Names of the labels it was evaluated with.
    """

    def __init__(
        self, recipe: Recipe, settings: Settings, shape: tuple[int, ...], classes: tuple[str, ...]
    ) -> None:
        self.recipe = recipe.eval().requires_grad_(False)
        self.settings, self.shape, self.classes = settings, shape, classes

    @torch.no_grad()
    def encode(self, images: Any, batch_size: int = _BATCH) -> Tensor:
        """Frozen features of images.

        Parameters
        ----------
        images : Tensor or array of shape (n, channels, height, width)
            uint8, of the size that the encoder was trained on.
        batch_size : int, default=500
            Images encoded at a time.

        Returns
        -------
        Tensor
            (n, d) on the CPU; (replicas, n, d) for several replicas.
        """
        parts = self._prepared(images, batch_size)
        found = torch.cat([self.recipe.encode(part).float().cpu() for part in parts], -2)
        return found[0] if found.ndim == 3 and len(found) == 1 else found

    @torch.no_grad()
    def pmi(self, first: Any, second: Any, batch_size: int = _BATCH) -> Tensor:
        """log r of each pair of images as two views of one thing; for simclr only.

        Parameters
        ----------
        first, second : Tensor or array of shape (n, channels, height, width)
            uint8 images, used without augmentation.
        batch_size : int, default=500
            Pairs at a time.

        Returns
        -------
        Tensor
            (n,) on the CPU.
        """
        recipe = self.recipe
        if not isinstance(recipe, SimCLR):
            raise InputError(f"a {self.settings.model} encoder has no PMI of two images")
        if len(first) != len(second):
            raise InputError(f"{len(first)} images cannot be paired with {len(second)}")
        both = (map(recipe.plain_views, self._prepared(one, batch_size)) for one in (first, second))
        return torch.cat([recipe.pmi(a, b).cpu() for a, b in zip(*both, strict=True)])

    def _prepared(self, images: Any, batch_size: int) -> Iterator[Tensor]:
        """The images on the device, as the recipe takes them, some at a time."""
        require_whole("batch_size", batch_size)
        images = torch.as_tensor(np.asarray(images) if not torch.is_tensor(images) else images)
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != self.shape:
            wanted = ", ".join(map(str, self.shape))
            raise InputError(f"images must be uint8 of shape (n, {wanted}), got {(*images.shape,)}")
        device = next(self.recipe.parameters()).device
        for part in images.split(batch_size):
            yield self.recipe.prepare_images(part.to(device))

    def save(self, path: str | Path) -> None:
        """Write the encoder as a folder of ``model.json`` and ``weights.safetensors``.

        Parameters
        ----------
        path : str or Path
            The folder; an encoder that is there is replaced.
        """
        trained_on = {"shape": list(self.shape), "classes": list(self.classes)}
        about = {"kind": _KIND, "settings": self.settings.as_dict(), **trained_on}
        storage.write_model(Path(path), about, self.recipe.state_dict())


def load_encoder(path: str | Path, device: str = "auto") -> FrozenEncoder:
    """Read what `FrozenEncoder.save` or ``pointdep pretrain`` wrote.

    Parameters
    ----------
    path : str or Path
        The folder, ``encoder/`` in that of a run.
    device : str, default="auto"
        Where it is to run: "cpu", "cuda", "mps", or the first of these that is available.

    Returns
    -------
    FrozenEncoder
        The encoder, ready to use.
    """
    path = Path(path)
    about, tensors = storage.read_model(path)
    if about.get("kind") != _KIND:
        raise ModelFileError(f"{path} is not an encoder of `pointdep pretrain`")
    try:
        settings = Settings.from_dict(about["settings"])
        shape, classes = tuple(about["shape"]), tuple(about["classes"])
        storage.require_shapes(lambda: make_recipe(settings, shape, len(classes)), tensors)
        recipe = make_recipe(settings, shape, len(classes))
        recipe.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"{path} lacks a part or holds a wrong one: {error}") from None
    return FrozenEncoder(recipe.to(pick_device(device)), settings, shape, classes)


class _PictureTower:
    """An encoder as `pointdep.data.encoders` asks for it: pictures of any size as numbers."""

    def __init__(self, encoder: FrozenEncoder) -> None:
        self._encoder = encoder
        self.takes = {"picture": self._pictures}

    def _pictures(self, values: Sequence[Any]) -> Tensor:
        from PIL import Image

        channels, height, width = self._encoder.shape
        mode = "L" if channels == 1 else "RGB"
        images = (Image.fromarray(one).convert(mode).resize((width, height)) for one in values)
        pixels = torch.from_numpy(np.stack([np.asarray(one) for one in images]))
        shaped = pixels.unsqueeze(1) if channels == 1 else pixels.permute(0, 3, 1, 2)
        found = self._encoder.encode(shaped)
        return found[0] if found.ndim == 3 else found  # the first of several replicas


def as_tower(path: str, device: str) -> _PictureTower:
    """The encoder in a folder, to be named by --x-encoder."""
    return _PictureTower(load_encoder(path, device))


@dataclass(frozen=True)
class Outcome:
    """One run: its last loss, and accuracies on the test images (shares, None: not evaluated)."""

    objective: str
    seed: int
    epochs: float
    seconds: float
    loss: float | None
    knn: float | None
    linear: float | None


@dataclass(frozen=True, eq=False)
class Pretrained:
    """What `pretrain` returns.

    Attributes
    ----------
    settings : Settings
        How the encoder was trained.
    outcomes : tuple of Outcome
        One per objective and seed: last loss, accuracies on the test images, training time.
    history : tuple of dict
        Losses and accuracies during training.
    flags : tuple of Flag
        Problems noticed in training.
    where : dict
        Device and precision, as they were used.
    wall_seconds : float
        Of all of it, with compiling, evaluating and writing; training time is in `history`.
    encoder : FrozenEncoder
        The trained encoder.
    folder : Path or None
        Where the run was written.
    """

    settings: Settings
    outcomes: tuple[Outcome, ...]
    history: tuple[Entry, ...]
    flags: tuple[Flag, ...]
    where: dict[str, str]
    wall_seconds: float
    encoder: FrozenEncoder
    folder: Path | None


def pretrain(
    images: ImageSet,
    settings: Settings,
    *,
    folder: str | Path | None = None,
    device: str = "auto",
    compile_networks: bool | None = None,
    checkpoint_every: float = 120.0,
    progress: bool = False,
) -> Pretrained:
    """Train the encoder that the settings describe, and evaluate its features on the labels.

    Parameters
    ----------
    images : ImageSet
        As `pointdep.data.images.load_images` gives them, or your own.
    settings : Settings
        Model, objectives, seeds and length of the run.
    folder : str or Path, optional
        Where to keep checkpoints, from which the same call goes on, and at the end ``encoder/``,
        ``history.csv``, ``run.json`` and TensorBoard's files.
    device : str, default="auto"
        "cpu", "cuda", "mps", or the first of these that is available.
    compile_networks : bool, optional
        By default on a GPU if the run is long enough.
    checkpoint_every : float, default=120.0
        Seconds between two checkpoints.
    progress : bool, default=False
        Show progress on standard error.

    Returns
    -------
    Pretrained
        The frozen encoder, the outcome of each run, and the history.

    Examples
    --------
    >>> from pointdep.contrastive import Settings, pretrain
    >>> from pointdep.data.images import load_images
    >>> images = load_images("digits").head(200)
    >>> settings = Settings("shallow", objectives=("pcc",), epochs=1, depth=2, width=8)
    >>> done = pretrain(images, settings, device="cpu")
    >>> tuple(done.encoder.encode(images.test).shape)
    (360, 32)
    """
    if not isinstance(images, ImageSet):
        raise InputError(f"images must be an ImageSet, as load_images gives it, not {type(images)}")
    if not checkpoint_every >= 0:
        raise InputError(f"checkpoint_every={checkpoint_every!r} must be seconds, 0 or more")
    if bool((images.train_labels == images.train_labels[0]).all()):
        raise InputError(f"all training images of {images.name} are of one class: give two or more")
    place = None if folder is None else Path(folder)
    fingerprint = _fingerprint(images, settings, process_count())
    title = f"{settings.model} {','.join(settings.objectives)}"
    if place is not None and (place / RUN).exists():
        with show(title, enabled=progress) as shown:
            shown.note(f"already finished, read from {place}")
        return _read_run(place, settings, fingerprint, device)
    fabric = make_fabric(device, settings.precision)
    recipe = make_recipe(settings, images.shape, len(images.classes))
    share_norms(recipe, fabric)
    recipe.to(fabric.device)
    if fabric.device.type == "cuda":
        recipe.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    moved = images.to(fabric.device)
    train, test = (recipe.prepare_images(part) for part in (moved.train, moved.test))
    prepared = replace(moved, train=train, test=test)
    kept: dict[str, Any] = {"folder": place, "fingerprint": fingerprint}
    kept |= {"write_every": checkpoint_every, "evaluate": _evaluate}
    training = Training(recipe, prepared, settings, fabric, **kept)
    if place is not None:
        # Once nothing else can be refused, and before anything is trained.
        try:
            place.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"{place} is a file, or in one: a run needs a folder") from None
        storage.check_target(place / ENCODER)
    if compile_networks is None:
        compile_networks = fabric.device.type == "cuda" and training.steps >= _COMPILED_STEPS
    if compile_networks:
        recipe.compile_parts()
    with show(title, enabled=progress and fabric.global_rank == 0) as shown:
        training.run(shown)
    return _conclude(training, images, place)


def about_images(images: ImageSet) -> dict[str, Any]:
    """What a run was trained and evaluated on."""
    return {
        **{name: getattr(images, name) for name in ("name", "source", "lossy")},
        "train": len(images.train),
        "test": len(images.test),
    }


def _evaluate(training: Training, end: bool) -> dict[str, list[float]]:
    """Nearest neighbours on some images, or a linear classifier on all; at the end both on all."""
    recipe, images, fabric = training.recipe, training.images, training.fabric
    if fabric.global_rank:
        return {}
    linear = end or training.settings.monitor == "linear"
    rows, tests = (None, None) if linear else (_MONITOR_TRAIN, _MONITOR_TEST)
    recipe.eval()
    with fabric.autocast():
        parts = images.train[:rows], images.test[:tests]
        train, test = (features(recipe.encode, part) for part in parts)
    recipe.train()
    train, test = (part.reshape(recipe.replicas, -1, part.shape[-1]) for part in (train, test))
    sound = train.isfinite().all((1, 2)) & test.isfinite().all((1, 2))
    if not sound.any():
        raise DivergedError("the features are not finite: lower the learning rate")
    if not sound.all():
        train, test = train[sound], test[sound]
    sides = train, images.train_labels[:rows], test, images.test_labels[:tests]
    found = {}
    if end or not linear:
        found["knn"] = knn_accuracy(*sides, k=min(20, train.shape[1]))
    if linear:
        fitted = linear_evaluation(*sides, scaling=recipe.scaling, C=recipe.regularisation)
        found["linear"] = fitted.accuracy
        if failed := int((~fitted.converged).sum()):
            said = f"the linear classifier of {failed} of {len(train)} runs did not converge"
            warnings.warn(f"{said}: its accuracy may be low", FitWarning, stacklevel=2)
    # One value per replica, NaN for those that diverged.
    values = {kind: np.full(recipe.replicas, np.nan) for kind in found}
    for kind, accuracy in found.items():
        values[kind][sound.cpu().numpy()] = accuracy
    return {kind: whole.tolist() for kind, whole in values.items()}


def _conclude(training: Training, images: ImageSet, place: Path | None) -> Pretrained:
    """Freeze the encoder, and write everything down."""
    recipe, settings, journal = training.recipe, training.settings, training.journal
    fabric = training.fabric
    journal.close()
    recipe.eval()
    generator = torch.Generator(fabric.device).manual_seed(mix("reference", settings.seeds[0]))
    recipe.remember(training.images.train[:_REFERENCE], generator)
    last = journal.entries[-1]
    values = (journal.last(kind) for kind in ("loss", "knn", "linear"))
    outcomes = [
        Outcome(objective, seed, last["epoch"], last["seconds"], *numbers)
        for (objective, seed), *numbers in zip(settings.runs, *values, strict=True)
    ]
    about = {
        "pointdep": pointdep.__version__,
        "fingerprint": training.fingerprint,
        "data": about_images(images),
        "settings": settings.as_dict(),
        "where": {"device": fabric.device.type, "precision": str(fabric._precision.precision)},
        "wall_seconds": training.wall_seconds,
        "outcomes": [asdict(outcome) for outcome in outcomes],
        "flags": [asdict(flag) for flag in training.flags],
        "history": journal.entries,
    }
    encoder = FrozenEncoder(recipe, settings, images.shape, images.classes)
    if place is not None and fabric.global_rank == 0:
        encoder.save(place / ENCODER)
        # In one move, and the checkpoint goes last: a kill leaves a run to go on from, or this.
        with whole_file(place / RUN) as file:
            file.write(json.dumps(about, indent=1).encode())
        remove_state(place / STATE)
    fabric.barrier()
    return Pretrained(settings, **_parts(about), encoder=encoder, folder=place)


def _read_run(place: Path, settings: Settings, fingerprint: str, device: str) -> Pretrained:
    """A run that was finished before."""
    try:
        about = json.loads((place / RUN).read_text("utf-8"))
        known, parts = about["fingerprint"], _parts(about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{place / RUN} cannot be read ({error}): delete it") from None
    if known != fingerprint:
        asked, there = json.loads(json.dumps(settings.as_dict())), about.get("settings", {})
        other = [f"{name} {there.get(name)}" for name in asked if there.get(name) != asked[name]]
        told = ", ".join(other) or "other data or another number of processes"
        raise InputError(f"{place} holds a finished run with {told}: choose another output folder")
    remove_state(place / STATE)
    encoder = load_encoder(place / ENCODER, device)
    return Pretrained(settings, **parts, encoder=encoder, folder=place)


def _parts(about: dict[str, Any]) -> dict[str, Any]:
    """Of `Pretrained`, what ``run.json`` holds."""
    return {
        "outcomes": tuple(Outcome(**one) for one in about["outcomes"]),
        "history": tuple(about["history"]),
        "flags": tuple(
            Flag(**{**one, "replicas": tuple(one["replicas"])}) for one in about["flags"]
        ),
        "where": about["where"],
        "wall_seconds": about["wall_seconds"],
    }


def _fingerprint(images: ImageSet, settings: Settings, ranks: int) -> str:
    """Of all that decides how a run goes on and what it is evaluated on."""
    digest = hashlib.sha256(json.dumps([settings.as_dict(), ranks, images.name]).encode())
    for part in (images.train, images.train_labels, images.test, images.test_labels):
        digest.update(repr(tuple(part.shape)).encode())
        digest.update(part[:: max(1, len(part) // 1000)].cpu().numpy().tobytes())
    return digest.hexdigest()
