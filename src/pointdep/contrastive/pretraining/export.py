"""The frozen encoder as a folder: ``model.json`` and ``weights.safetensors``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.contrastive.pretraining.settings import Settings
from pointdep.contrastive.pretraining.simclr import SimCLR
from pointdep.data import storage
from pointdep.data.images import ImageSet
from pointdep.errors import InputError, ModelFileError, require_whole
from pointdep.fitting.rendezvous import pick_device

_KIND = "encoder"
_BATCH = 500


class FrozenEncoder:
    """A trained encoder: images in, features out.

    recipe: the trained networks with their loss; settings: how they were trained; shape: of an
    image, (channels, height, width); classes: names of the labels it was evaluated with.
    """

    def __init__(
        self,
        recipe: Recipe,
        settings: Settings,
        shape: tuple[int, int, int],
        classes: tuple[str, ...],
    ) -> None:
        self.recipe = recipe.eval().requires_grad_(False)
        self.settings, self.shape, self.classes = settings, shape, classes

    @torch.no_grad()
    def encode(self, images: Any, batch_size: int = _BATCH) -> Tensor:
        """uint8 images (n, c, h, w) -> features (n, d) on the CPU; (replicas, n, d) of several."""
        parts = [self.recipe.encode(part).float().cpu() for part in self._parts(images, batch_size)]
        found = torch.cat(parts, -2)
        return found[0] if found.ndim == 3 and len(found) == 1 else found

    @torch.no_grad()
    def pmi(self, first: Any, second: Any, batch_size: int = _BATCH) -> Tensor:
        """log r of each pair of images as two views of one thing, (n,) on the CPU; of simclr alone.

        first, second: (n, c, h, w) uint8, seen as they are.
        """
        if not isinstance(self.recipe, SimCLR):
            raise InputError(f"a {self.settings.model} encoder has no PMI of two images")
        if len(first) != len(second):
            raise InputError(f"{len(first)} images cannot be paired with {len(second)}")
        sides = (self._parts(images, batch_size) for images in (first, second))
        return torch.cat([self.recipe.image_pmi(a, b).cpu() for a, b in zip(*sides, strict=True)])

    def _parts(self, images: Any, batch_size: int) -> Iterator[Tensor]:
        """The images on the device, as the recipe takes them, some at a time."""
        require_whole("batch_size", batch_size)
        images = torch.as_tensor(np.asarray(images) if not torch.is_tensor(images) else images)
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != self.shape:
            raise InputError(
                f"images are uint8 of shape (n, {', '.join(map(str, self.shape))}), "
                f"got {images.dtype} of shape {tuple(images.shape)}"
            )
        device = next(self.recipe.parameters()).device
        for part in images.split(batch_size):
            yield self.recipe.prepare_images(part.to(device))

    def save(self, path: str | Path) -> None:
        """Write it as a folder."""
        about = {
            "kind": _KIND,
            "settings": self.settings.as_dict(),
            "shape": list(self.shape),
            "classes": list(self.classes),
        }
        storage.write_model(Path(path), about, self.recipe.state_dict())


def load_encoder(path: str | Path, device: str = "auto") -> FrozenEncoder:
    """What `FrozenEncoder.save`, or ``pointdep pretrain``, wrote."""
    path = Path(path)
    about, tensors = storage.read_model(path)
    if about.get("kind") != _KIND:
        raise ModelFileError(f"{path} is not an encoder of `pointdep pretrain`")
    try:
        settings = Settings.from_dict(about["settings"])
        channels, height, width = about["shape"]
        classes = tuple(about["classes"])
        recipe = make_recipe(settings, (channels, height, width), len(classes))
        recipe.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"{path} lacks a part or holds a wrong one: {error}") from None
    return FrozenEncoder(
        recipe.to(pick_device(device)), settings, (channels, height, width), classes
    )


def freeze(recipe: Recipe, settings: Settings, images: ImageSet) -> FrozenEncoder:
    """The trained recipe as it is; images: as they were read."""
    channels, height, width = images.train.shape[1:]
    return FrozenEncoder(recipe, settings, (channels, height, width), images.classes)
