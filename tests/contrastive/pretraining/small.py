"""Small runs of each model, and one that is killed: as a script, MODEL FOLDER STEPS."""

import os
import signal
import sys
from pathlib import Path

import torch

from pointdep.contrastive import Settings, pretrain
from pointdep.contrastive.pretraining import loop
from pointdep.data.images import ImageSet

SMALL = {
    "shallow": {"width": 16, "depth": 3, "batch_size": 16, "objectives": ("cpc", "drfc")},
    "amdim": {"width": 4, "depth": 1, "batch_size": 16, "objectives": ("pcc",)},
    "simclr": {"width": 4, "batch_size": 16, "objectives": ("drfc",)},
}


def some_images(rows=64, seed=0, side=32):
    """Four classes, each with a colour of its own under noise."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randint(60, 200, (4, 3, 1, 1), generator=generator)
    labels = torch.arange(2 * rows) % 4
    noise = torch.randint(-40, 40, (2 * rows, 3, side, side), generator=generator)
    pixels = (colours[labels] + noise).clamp(0, 255).to(torch.uint8)
    parts = pixels[:rows], labels[:rows], pixels[rows:], labels[rows:]
    return ImageSet("colours", *parts, ("a", "b", "c", "d"), "four colours")


def images_for(model):
    """Of CIFAR-10's shape; smaller for the shallow model, whose weights grow with the image."""
    return some_images(side=8 if model == "shallow" else 32)


def settings(model, **changed):
    return Settings(model, **{"epochs": 3, "precision": "32", **SMALL[model], **changed})


def train(model, folder=None, **changed):
    chosen = settings(model, **changed)
    return pretrain(images_for(model), chosen, folder=folder, device="cpu", checkpoint_every=0)


def die_after(steps):
    """Have this process killed once the checkpoint of that step is written."""
    write = loop.write_checkpoint

    def write_and_die(path, kind, fingerprint, state):
        write(path, kind, fingerprint, state)
        if state["step"] == steps:
            os.kill(os.getpid(), signal.SIGKILL)

    loop.write_checkpoint = write_and_die
    loop._SHARE_OF_WRITING = 1e9  # a checkpoint at every step


if __name__ == "__main__":
    die_after(int(sys.argv[3]))
    train(sys.argv[1], Path(sys.argv[2]))
