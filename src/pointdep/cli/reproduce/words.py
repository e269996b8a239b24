"""Options that ``pointdep reproduce table2`` and ``figure3`` share."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli.show import print_json

if TYPE_CHECKING:
    from pointdep.data.word_pairs import WordPairs
    from pointdep.experiments.words import Training

_LARGE = 10_000_000  # bytes of text, which take a second or two to read

Audio = Annotated[
    Path | None, typer.Option("--audio", help="Vectors of the sounds, as Speech2Vec's .vec file.")
]
Text = Annotated[
    Path | None,
    typer.Option("--text", help="Vectors of the texts, a .vec file with the same words in order."),
]
Data = Annotated[
    Path | None, typer.Option("--data", help="Both in one .npz: arrays words, audio and text.")
]
TestWords = Annotated[
    int | None,
    typer.Option(
        "--test-words",
        show_default="5000, at most a fifth",
        help="Words kept for the test: at least 21.",
    ),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", show_default="100", help="Passes over the training words.")
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", show_default="512", help="Pairs that are set against each other."),
]
Hidden = Annotated[
    str | None,
    typer.Option("--hidden", show_default="512,512", help="Widths of each side's hidden layers."),
]
EmbeddingDim = Annotated[
    int | None,
    typer.Option("--embedding-dim", show_default="128", help="Columns of the inner product."),
]
LearningRate = Annotated[
    float | None, typer.Option("--learning-rate", show_default="0.001", help="Of Adam.")
]


def files(audio: Path | None, text: Path | None, data: Path | None) -> tuple[str, ...]:
    """The options that name the vectors, as they were given."""
    given = {"--audio": audio, "--text": text, "--data": data}
    return tuple(word for name, path in given.items() if path for word in (name, str(path)))


def read(audio: Path | None, text: Path | None, data: Path | None, *, quiet: bool) -> WordPairs:
    """The pairs; of large files it is said that they are being read."""
    from pointdep.data.word_pairs import read_word_pairs

    large = [path for path in (audio, text) if path and path.is_file()]
    if not quiet and sum(path.stat().st_size for path in large) > _LARGE:
        print(f"reading {' and '.join(map(str, large))} ...", file=sys.stderr, flush=True)
    return read_word_pairs(audio=audio, text=text, data=data)


def say_how_long(seconds: float, networks: int) -> None:
    """On standard error, before the minutes begin."""
    from pointdep.fitting.progress import duration

    print(
        f"on this CPU about {duration(seconds)} for {networks} networks",
        file=sys.stderr,
        flush=True,
    )


def tell_json(
    command: str, settings: Training, device: str, content: dict[str, Any], output: Path
) -> None:
    """The outcome for a program; device: that was used."""
    head = {**asdict(settings), "device": device}
    print_json(f"reproduce {command}", {**head, **content, "output": str(output)})
