"""``pointdep reproduce figure3``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pointdep.cli import options
from pointdep.cli.reproduce import shared, words
from pointdep.cli.reproduce.table2 import Quick

Folds = Annotated[
    int | None,
    typer.Option(
        "--folds", show_default="5", help="Networks for PMI out of sample, each on the other folds."
    ),
]


def figure3(
    audio: words.Audio = None,
    text: words.Text = None,
    data: words.Data = None,
    test_words: words.TestWords = None,
    folds: Folds = None,
    epochs: words.Epochs = None,
    batch_size: words.BatchSize = None,
    hidden: words.Hidden = None,
    embedding_dim: words.EmbeddingDim = None,
    learning_rate: words.LearningRate = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    quick: Quick = False,
    output: shared.Output = Path("figure3"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Figure 3: PMI of the sound and text of words.

    A network learns from words whose sound and text are given as vectors; drawn is their PMI, by
    that network and by others that did not see the word, with the words below zero by their
    endings. The paper's claims are judged by them.

    For instance:  pointdep reproduce figure3 --audio speech2vec/100.vec --text word2vec/100.vec
    """
    from pointdep.experiments.folders import prepare_folder, refuse_other_results
    from pointdep.experiments.words.figure3 import expected_seconds_figure3, run_figure3
    from pointdep.experiments.words.report import figure3_as_dict, write_figure3
    from pointdep.experiments.words.settings import Figure3
    from pointdep.experiments.words.tables import text_figure3
    from pointdep.fitting.progress import show
    from pointdep.fitting.rendezvous import pick_device

    settings = shared.chosen(
        Figure3().quick() if quick else Figure3(),
        files=words.files(audio, text, data),
        test_words=test_words,
        folds=folds,
        epochs=epochs,
        batch_size=batch_size,
        hidden=shared.widths(hidden),
        embedding_dim=embedding_dim,
        learning_rate=learning_rate,
        seed=seed,
        device=device,
    )
    on_cpu = pick_device(device).type == "cpu"
    pairs = words.read(audio, text, data, quiet=quiet)
    settings.split_sizes(len(pairs))  # refuses too few words
    prepare_folder(output)
    refuse_other_results(output, settings.command)
    if on_cpu and not quiet:
        words.say_how_long(expected_seconds_figure3(settings, pairs), 1 + settings.folds)
    with show("Figure 3", enabled=not quiet, left="about") as progress:
        found = run_figure3(settings, pairs, progress)
    claims = write_figure3(found, output)
    if json:
        content = figure3_as_dict(found, claims)
        words.tell_json("figure3", settings, found.device, content, output)
    else:
        words.tell(settings, found.all_words, text_figure3(found), claims, output)
