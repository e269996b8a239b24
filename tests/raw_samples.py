"""Pictures, texts and sounds for tests, made here."""

import io
import wave

import numpy as np
from PIL import Image

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 210)}


def png(colour, size=(8, 8), kind="PNG", mode="RGB"):
    file = io.BytesIO()
    Image.new("RGB", size, colour).convert(mode).save(file, kind)
    return file.getvalue()


def wav(frequency, seconds=0.2, rate=8000):
    file = io.BytesIO()
    time = np.arange(int(seconds * rate)) / rate
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, rate, len(time), "NONE", ""))
        out.writeframes((20000 * np.sin(2 * np.pi * frequency * time)).astype("<i2").tobytes())
    return file.getvalue()


def pairs(count=90, seed=0):
    """Pictures of a colour with noise, and sentences that name it; the names of the colours."""
    random = np.random.default_rng(seed)
    names = random.choice(list(COLOURS), count)
    pixels = np.array([COLOURS[name] for name in names])[:, None, None]
    images = np.clip(pixels + random.normal(0, 20, (count, 8, 8, 3)), 0, 255).astype(np.uint8)
    starts = random.choice(["this is a", "we see the", "look, one"], count)
    things = random.choice(["thing", "box", "card", "stone", "leaf", "cup", "hat", "ball"], count)
    texts = [f"{a} {b} {c}" for a, b, c in zip(starts, names, things, strict=True)]
    return images, texts, names
