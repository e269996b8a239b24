"""What the built-in encoders are good for: digits with captions, two languages, CIFAR-10.

    python benchmarks/raw_inputs.py --data FOLDER [--parts digits,languages,cifar10]

`digits` writes scikit-learn's 1,797 digits as PNG and captions in 30 phrasings, swaps 4 % of the
captions with those of other digits, and audits the table by the command line. `languages` does so
with 8,000 captions of Multi30k (FOLDER/multi30k/train.en.gz and .de.gz), 3 % of the translations
permuted. `cifar10` trains a linear classifier on the picture features of 10,000 training images and
tests it on the 10,000 test images. FOLDER/cifar10-jpeg.tar.xz holds them as JPEG of quality 75, so
that accuracies are a little below those of the lossless images.
The encoders' constants were chosen on other digits' captions (seed 5), on rows 20,000 to 28,000 of
Multi30k, and on CIFAR-10's training images from 10,000 on.
"""

import argparse
import csv
import gzip
import io
import json
import resource
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

RESULT = Path(__file__).parent / "results" / "raw_inputs.json"
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
STARTS = ["a photo of", "this shows", "handwritten", "someone wrote", "an image of"]
MIDDLES, ENDS = ["the digit", "number", "a"], ("", " on paper")
PHRASES = [f"{a} {b} {{}}{c}" for a in STARTS for b in MIDDLES for c in ENDS]


def write_digits(folder: Path, seed: int) -> Any:
    """PNG files and captions.csv; which rows have a wrong caption."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits, random = load_digits(), np.random.default_rng(seed)
    count = len(digits.target)
    bad = random.choice(count, round(0.04 * count), replace=False)
    said = digits.target.copy()
    while (said[bad] == digits.target[bad]).any():  # captions change places among these rows
        same = bad[said[bad] == digits.target[bad]]
        others = random.choice(bad, len(same))
        for one, other in zip(same, others, strict=True):
            said[[one, other]] = said[[other, one]]
    (folder / "img").mkdir()
    rows = []
    for n, (image, name) in enumerate(zip(digits.images, said, strict=True)):
        Image.fromarray((image * 15.9).astype(np.uint8)).save(folder / "img" / f"{n:05d}.png")
        phrase = PHRASES[random.integers(len(PHRASES))]
        rows.append((f"img/{n:05d}.png", phrase.format(NUMBERS[name])))
    write_csv(folder / "captions.csv", ("file", "caption"), rows)
    return bad


def write_languages(folder: Path, data: Path, first: int, seed: int) -> Any:
    """captions.csv with two columns; which rows have a wrong translation."""
    sides = []
    for language in ("en", "de"):
        with gzip.open(data / "multi30k" / f"train.{language}.gz", "rt", encoding="utf-8") as file:
            sides.append(file.read().splitlines()[first : first + 8000])
    bad = np.random.default_rng(seed).choice(8000, 240, replace=False)
    order = np.arange(8000)
    order[bad] = np.roll(bad, 1)
    rows = [(sides[0][n], sides[1][m]) for n, m in enumerate(order)]
    write_csv(folder / "captions.csv", ("english", "german"), rows)
    return bad


def write_csv(path: Path, names: tuple[str, ...], rows: list[tuple[str, str]]) -> None:
    """A table with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])


def audit(folder: Path, bad: Any, columns: tuple[str, str], keep: Path | None) -> dict[str, Any]:
    """One command; how well PMI tells the wrong rows, and what it took."""
    import pandas as pd
    from sklearn.metrics import roc_auc_score

    page = (keep or folder) / "page.html"
    given = ["--x-columns", columns[0], "--y-columns", columns[1], "-o", str(page)]
    command = [sys.executable, "-m", "pointdep", "audit", str(folder / "captions.csv"), *given]
    before, start = used(), time.perf_counter()
    subprocess.run(
        [*command, "--table", str(folder / "rows.csv"), "-q"], check=True, stdout=subprocess.DEVNULL
    )
    seconds, processor = time.perf_counter() - start, used() - before
    table = pd.read_csv(folder / "rows.csv")
    wrong = np.isin(np.arange(len(table)), bad)
    suspect = table["suspect"].to_numpy(bool)
    return {
        "rows": len(table),
        "wrong": int(wrong.sum()),
        "auroc": round(float(roc_auc_score(wrong, -table["pmi"])), 4),
        "suspects": int(suspect.sum()),
        "suspects_wrong": int((suspect & wrong).sum()),
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
    }


def used() -> float:
    """Processor seconds of finished children."""
    of = resource.getrusage(resource.RUSAGE_CHILDREN)
    return of.ru_utime + of.ru_stime


def cifar10(data: Path) -> dict[str, Any]:
    """Accuracy of a linear classifier, and images per second of a processor's core."""
    from PIL import Image
    from sklearn.linear_model import LogisticRegression

    from pointdep.data.features import PictureEncoder

    order = np.load(data / "cifar10_original_order.npz")
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in order["classes"]]
    wanted: dict[str, tuple[str, int]] = {}
    for part, count in (("train", 10_000), ("test", 10_000)):
        of = zip(order[f"{part}_label"][:count], order[f"{part}_k"][:count], strict=True)
        wanted |= {f"{part}/{names[c]}/{k:04d}.jpg": (part, n) for n, (c, k) in enumerate(of)}
    images = {part: np.empty((10_000, 32, 32, 3), np.uint8) for part in ("train", "test")}
    with tarfile.open(data / "cifar10-jpeg.tar.xz") as archive:
        for member in archive:
            place = wanted.get(member.name.removeprefix("./"))
            file = archive.extractfile(member) if place else None
            if place and file:
                images[place[0]][place[1]] = np.asarray(Image.open(io.BytesIO(file.read())))
    labels = {part: order[f"{part}_label"][:10_000] for part in images}
    encoder = PictureEncoder()
    start = time.process_time()
    train = encoder.fit(list(images["train"]))
    middle = time.process_time()
    test = encoder.transform(list(images["test"]))
    end = time.process_time()

    def accuracy(features: Any, tested: Any) -> float:
        center, scale = features.mean(0), features.std(0).mean()
        fitted = LogisticRegression(C=0.002, max_iter=200)
        fitted.fit((features - center) / scale, labels["train"])
        return round(float(fitted.score((tested - center) / scale, labels["test"])), 4)

    pixels = [images[part].reshape(10_000, -1) / 255.0 for part in images]
    return {
        "features": train.shape[1],
        "accuracy": accuracy(train, test),
        "accuracy_of_pixels": accuracy(*pixels),
        "fit_images_per_second_of_a_core": round(10_000 / (middle - start)),
        "images_per_second_of_a_core": round(10_000 / (end - middle)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parts", default="digits,languages,cifar10")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the last page")
    given = parser.parse_args()
    found = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for part in given.parts.split(","):
        with TemporaryDirectory() as scratch:
            folder = Path(scratch)
            if part == "digits":
                bad = write_digits(folder, given.seed)
                found[part] = audit(folder, bad, ("file", "caption"), given.keep)
            elif part == "languages":
                bad = write_languages(folder, given.data, 0, given.seed)
                found[part] = audit(folder, bad, ("english", "german"), given.keep)
            else:
                found[part] = cifar10(given.data)
        print(part, found[part], flush=True)
        RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
