"""``pointdep reproduce table2``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pointdep.cli import options
from pointdep.cli.reproduce import shared, words

Methods = Annotated[
    str | None,
    typer.Option(
        "--methods", show_default="pc,drf,drf_relative", help="Names, comma separated."
    ),
]  # fmt: skip
Draws = Annotated[
    int | None,
    typer.Option("--draws", show_default="20", help="Random draws of the other candidates."),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Smaller: 40 epochs on batches of 128, layers 128,128. Options that are given win.",
    ),
]


def table2(
    audio: words.Audio = None,
    text: words.Text = None,
    data: words.Data = None,
    test_words: words.TestWords = None,
    methods: Methods = None,
    draws: Draws = None,
    epochs: words.Epochs = None,
    batch_size: words.BatchSize = None,
    hidden: words.Hidden = None,
    embedding_dim: words.EmbeddingDim = None,
    learning_rate: words.LearningRate = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    quick: Quick = False,
    output: shared.Output = Path("table2"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Table 2: match the sounds and texts of words.

    Networks learn from words whose sound and text are given as vectors; then, for each other word,
    the text that belongs to its sound is looked for among five. The folder receives the shares,
    examples right and wrong, and the paper's claims judged by them.

    For instance:  pointdep reproduce table2 --audio speech2vec/100.vec --text word2vec/100.vec
    """
    from pointdep.experiments.folders import prepare_folder, refuse_other_results
    from pointdep.experiments.words.report import table2_as_dict, write_table2
    from pointdep.experiments.words.settings import Table2
    from pointdep.experiments.words.table2 import expected_seconds_table2, run_table2
    from pointdep.experiments.words.tables import text_table2
    from pointdep.fitting.progress import show
    from pointdep.fitting.rendezvous import pick_device

    settings = shared.chosen(
        Table2().quick() if quick else Table2(),
        files=words.files(audio, text, data),
        test_words=test_words,
        methods=shared.names("--methods", methods),
        draws=draws,
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
        words.say_how_long(expected_seconds_table2(settings, pairs), len(settings.methods))
    with show("Table 2", enabled=not quiet, left="about") as progress:
        matched = run_table2(settings, pairs, progress)
    claims = write_table2(matched, output)
    if json:
        content = table2_as_dict(matched, claims)
        words.tell_json("table2", settings, matched.device, content, output)
    else:
        words.tell(settings, matched.words, text_table2(matched), claims, output)
