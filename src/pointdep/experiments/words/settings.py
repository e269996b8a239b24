"""What is trained for Table 2 and Figure 3, and on how many of the words."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from pointdep.core.methods import METHODS, Method, get_method
from pointdep.errors import InputError, require_whole

PAPER_WORDS = 37_622
PAPER_TEST_WORDS = 5_000
RELATIVE_ALPHA = 0.001  # of density-ratio fitting, in the notebook that the authors released
CANDIDATES = 5
SHIFT = 5  # between the released notebook's candidates, in rows of the test split
_Any = TypeVar("_Any", bound="Training")


@dataclass(frozen=True)
class Training:
    """The network and how it learns; the defaults are the paper's.

    Attributes
    ----------
    files: the options that name the word vectors, as ("--data", "words.npz").
    test_words: how many words are kept for the test; None: the paper's 5,000, or a fifth of the
        words where that is less.
    """

    files: tuple[str, ...] = ()
    test_words: int | None = None
    batch_size: int = 512
    epochs: int = 100
    hidden: tuple[int, ...] = (512, 512)
    embedding_dim: int = 128
    learning_rate: float = 1e-3
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "embedding_dim"):
            require_whole(name, getattr(self, name))
        require_whole("seed", self.seed, least=0)
        if self.batch_size < 2:
            raise InputError(
                f"batch_size={self.batch_size} must be at least 2: every pair is set against the "
                "mismatched pairs of its batch"
            )
        if self.test_words is not None:
            require_whole("test_words", self.test_words, least=self.fewest_test_words())
        if not self.hidden:
            raise InputError("hidden must name at least one layer")
        for width in self.hidden:
            require_whole("hidden", width)
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate={self.learning_rate!r} must be positive")

    @staticmethod
    def fewest_test_words() -> int:
        """So many that the candidates of a trial are different words."""
        return SHIFT * (CANDIDATES - 1) + 1

    def quick(self: _Any) -> _Any:
        """Smaller networks on smaller batches, which learn from fewer words a step."""
        return replace(self, epochs=40, batch_size=128, hidden=(128, 128))

    def split_sizes(self, words: int) -> tuple[int, int]:
        """How many of so many words train, and how many test."""
        test = self.test_words or min(PAPER_TEST_WORDS, words // 5)
        least, needed = self.fewest_test_words(), self.rows_needed()
        enough = words >= least + needed
        if test < least:
            smaller = "" if enough else " with a smaller --batch-size"
            raise InputError(
                f"{test} of {words} words would test, where at least {least} must: give "
                f"--test-words {least}{smaller}, or more words"
            )
        if words - test < needed:
            fewer = " or --test-words" if enough else ""
            raise InputError(
                f"{max(words - test, 0)} of {words} words would train, where batches of "
                f"{self.batch_size} need {needed}: give a smaller --batch-size{fewer}, or more "
                "words"
            )
        return words - test, test

    def rows_needed(self) -> int:
        """The fewest training words there can be."""
        return self.batch_size

    def departures(self, words: int) -> list[str]:
        """In what this differs from the paper's experiment, in words."""
        said = []
        if words != PAPER_WORDS:
            said.append(
                f"{words:,} words that are not the paper's {PAPER_WORDS:,} Speech2Vec and Word2Vec "
                "vectors"
            )
        if self.test_words not in (None, PAPER_TEST_WORDS):
            said.append(f"test words {self.test_words}, not {PAPER_TEST_WORDS}")
        paper = type(self)()
        for name in ("batch_size", "epochs", "hidden", "embedding_dim", "learning_rate"):
            own, theirs = getattr(self, name), getattr(paper, name)
            if own != theirs:
                said.append(f"{name.replace('_', ' ')} {_shown(own)}, not {_shown(theirs)}")
        return said

    def command_of(self, name: str) -> str:
        """The command line that asks for this."""
        words = ["pointdep", "reproduce", name, *self.files]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "files" and value is not None:
                words += [f"--{field.name.replace('_', '-')}", _shown(value)]
        return shlex.join(words)


@dataclass(frozen=True)
class Table2(Training):
    """1:5 matching on the test words.

    Attributes
    ----------
    methods: `drf` as the paper prints it, and `drf_relative` as the released notebook has it.
    draws: how often the four other candidates are drawn at random, beside the fixed ones.
    """

    methods: tuple[str, ...] = ("pc", "drf", "drf_relative")
    draws: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("draws", self.draws, least=2)
        object.__setattr__(self, "methods", tuple(dict.fromkeys(self.methods)))
        if not self.methods:
            raise InputError("methods must name at least one")
        for name in self.methods:
            words_method(name)

    @property
    def command(self) -> str:
        return self.command_of("table2")


@dataclass(frozen=True)
class Figure3(Training):
    """PMI of the training words, in sample and by `folds` networks that did not see them."""

    folds: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("folds", self.folds, least=2)

    @property
    def command(self) -> str:
        return self.command_of("figure3")

    def rows_needed(self) -> int:
        """A fold trains on the words of the others."""
        return math.ceil(self.batch_size * self.folds / (self.folds - 1)) + 1


def words_method(name: str) -> Method:
    """The method, with the released notebook's alpha for the relative form."""
    options: dict[str, Any] = {"alpha": RELATIVE_ALPHA} if name == "drf_relative" else {}
    method = get_method(name, options)
    if method.reference != "none" or method.gradient is not None:
        able = [k for k, m in METHODS.items() if m.reference == "none" and m.gradient is None]
        raise InputError(
            f"method {name!r} needs more than the pair to tell its PMI: choose from "
            f"{', '.join(able)}"
        )
    return method


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
