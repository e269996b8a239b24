"""``pointdep reproduce``: the figures and tables of the paper, run again.

The options of a command are those that its docstring explains. What is given goes into the settings
of the experiment, whose defaults are the paper's. The help repeats those defaults, because the
settings themselves import PyTorch.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pointdep.cli import options, pretrain
from pointdep.cli.options import Given
from pointdep.cli.show import print_json
from pointdep.errors import InputError, require_known
from pointdep.fitting.progress import duration, show
from pointdep.fitting.rendezvous import pick_device

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pointdep.data.images import ImageSet

_Settings = TypeVar("_Settings", bound="DataclassInstance")
_LARGE = 10_000_000  # bytes of text, which take a second or two to read


_FROM_PRETRAIN = (
    *("batch_size", "learning_rate", "width", "depth", "data", "download", "limit"),
    *("checkpoint_every", "compile_networks"),
)
_PRETRAINING = {name: pretrain.pretrain.__annotations__[name] for name in _FROM_PRETRAIN}
_takes = functools.partial(options.takes, options.KINDS)


def _chosen(base: _Settings, given: Given) -> _Settings:
    """The settings with the options that were given."""
    known = {field.name for field in fields(base)}
    return replace(base, **{k: v for k, v in given.items() if k in known and v is not None})


def _tell(command: str, given: Given, text: str, content: Given) -> None:
    """The outcome for a person or a program."""
    output = given["output"]
    if given["json"]:
        print_json(f"reproduce {command}", {**content, "output": output})
        return
    print(text)
    if output is not None:
        print(f"written: {output}")


def _say(text: str) -> None:
    """On standard error, before the minutes or hours begin."""
    print(text, file=sys.stderr, flush=True)


@_takes({"json": options.Json})
def table1(given: Given) -> None:
    """Table 1: what each method learns by, and how it infers.

    For instance:  pointdep reproduce table1 -o table1.md

    Options
    -------
    output: File for the table, in Markdown.
    """
    from pointdep.experiments.table1 import NOTES, table, text_table, write_markdown

    if given["output"] is not None:
        write_markdown(given["output"])
    after = "" if given["output"] is None else "\n"
    _tell("table1", given, text_table() + after, {"rows": table(), "notes": NOTES})


@_takes(options.SHARED, output=Path("figure1"))
def figure1(given: Given) -> None:
    """Figure 1: ten estimators while the truth climbs.

    Networks learn from fresh pairs while their mutual information is raised from 2 to 10 nats; the
    folder receives the figure, every curve, bias and spread, and the paper's claims judged by them.
    It is made for a GPU: without one, --quick.

    For instance:  pointdep reproduce figure1 --quick -o figure1/

    Options
    -------
    methods: Names, comma separated. [the ten of the paper]
    tasks: gaussian, cubic or both. [gaussian,cubic]
    critic: concat or separable. [concat]
    dim: Columns of x and of y. [20]
    batch_size: Pairs drawn for each iteration. [128]
    iterations: In all, shared by the levels of the truth. [20000]
    hidden: Widths of the hidden layers. [512,512]
    learning_rate: Of Adam. [0.001]
    seeds: How often every curve is drawn. [1]
    precision: Of matrix products: bf16, tf32, float32, float64, or auto: bf16 on a GPU. [auto]
    quick: Smaller, for a CPU: 5,000 iterations on batches of 32, layers 64,64, learning rate 0.002;
        a minute or two. Options that are given win.
    output: Folder for figure and numbers.
    """
    from pointdep.experiments.figure1 import Figure1, expected_seconds, run_figure1
    from pointdep.experiments.figure1_report import text_claims, text_table, write_report
    from pointdep.experiments.reports import prepare_folder

    smaller = _chosen(Figure1().quick(), given)
    settings = smaller if given["quick"] else _chosen(Figure1(), given)
    on_cpu = pick_device(settings.device).type == "cpu"
    prepare_folder(given["output"], settings.command)
    if on_cpu and not given["quiet"]:
        _say("measuring how fast this CPU is ...")
        seconds = expected_seconds(settings)
        less = seconds if settings == smaller else expected_seconds(smaller)
        hint = f"; with --quick about {duration(less)}" if less < seconds / 2 else ""
        _say(
            f"on this CPU about {duration(seconds)} for {settings.iterations:,} iterations of "
            f"{len(settings.cells)} networks{hint}"
        )
    with show("Figure 1", enabled=not given["quiet"], left="about") as progress:
        curves = run_figure1(settings, progress)
    lines, claims = write_report(curves, given["output"])
    told = "key", "source", "quote", "quantity", "verdict", "because"
    measured = "device", "precision", "setup_seconds", "train_seconds"
    content = {
        **asdict(settings),
        **{name: getattr(curves, name) for name in measured},
        "summary": lines,
        "claims": [{name: getattr(claim, name) for name in told} for claim in claims],
    }
    _tell("figure1", given, f"{text_table(lines)}\n{text_claims(claims, settings)}", content)


@_takes(options.SHARED, output=Path("theorem1"))
def theorem1(given: Given) -> None:
    """Theorem 1: the error against the number of rows.

    The theorem bounds the error of an estimate from n rows by a multiple of n^-1/2. Networks are
    fitted to n Gaussian pairs of known mutual information, n from 300 to 100,000, and the exponent
    with which the error falls is set beside -1/2. The largest n takes most of the time.

    For instance:  pointdep reproduce theorem1 --quick -o theorem1/

    Options
    -------
    methods: Names, comma separated, of methods that infer the mean of PMI. [pc,drf]
    rows: Numbers of rows, comma separated. [300,1000,3000,10000,30000,100000]
    dim: Columns of x and of y. [5]
    mi: True mutual information, in nats. [1]
    critic: concat or separable. [concat]
    hidden: Widths of the hidden layers. [64,64]
    activation: relu, silu, gelu, tanh or elu. [relu]
    folds: Networks of an estimate; each row is new to one. [2]
    seeds: Estimates of each kind, on new rows. [10]
    quick: In under 2 minutes: up to 10,000 rows, 5 seeds, layers 32,32. Options that are given win.
    output: Folder for figure and numbers.
    """
    from pointdep.experiments import theorem1 as experiment
    from pointdep.experiments.reports import TEXTS, filled, prepare_folder

    paper = experiment.Theorem1()
    settings = _chosen(paper.quick() if given["quick"] else paper, given)
    pick_device(settings.device)  # refuses one that is not there
    prepare_folder(given["output"], settings.command)
    with show("Theorem 1", enabled=not given["quiet"], left="about") as progress:
        outcome = experiment.run_theorem1(settings, progress)
    experiment.write_report(outcome, given["output"])
    lines, found = experiment.summarise(outcome), experiment.slopes(outcome)
    said = [TEXTS["theorem1 legend"], *experiment.reading(lines, found), TEXTS["theorem1 known"]]
    content = {
        **asdict(settings),
        "device": outcome.device,
        "weights": outcome.weights,
        "seconds": sum(outcome.seconds),
        "slopes": found,
        "summary": lines,
    }
    text = "\n\n".join([experiment.text_table(lines), *map(filled, said)])
    _tell("theorem1", given, text + "\n", content)


def _run_words(title: str, experiment: Any, paper: Any, run: Any, given: Given) -> None:
    """Read the words, run the experiment on them, write and tell what it found.

    Options
    -------
    audio: Vectors of the sounds, as Speech2Vec's .vec file.
    text: Vectors of the texts, a .vec file with the same words in order.
    data: Both in one .npz: arrays words, audio and text.
    test_words: Words kept for the test: at least 21. [5000, at most a fifth]
    epochs: Passes over the training words. [100]
    batch_size: Pairs that are set against each other. [512]
    hidden: Widths of each side's hidden layers. [512,512]
    embedding_dim: Columns of the inner product. [128]
    learning_rate: Of Adam. [0.001]
    quick: Smaller: 40 epochs on batches of 128, layers 128,128. Options that are given win.
    output: Folder for figure and numbers.
    """
    from pointdep.data.word_pairs import read_word_pairs
    from pointdep.experiments.reports import prepare_folder
    from pointdep.experiments.words import expected_seconds

    files = {name: given[name] for name in ("audio", "text", "data")}
    named = tuple(str(word) for k, path in files.items() if path for word in (f"--{k}", path))
    settings = _chosen(paper.quick() if given["quick"] else paper, {**given, "files": named})
    on_cpu, quiet = pick_device(settings.device).type == "cpu", given["quiet"]
    large = [path for name, path in files.items() if name != "data" and path and path.is_file()]
    if not quiet and sum(path.stat().st_size for path in large) > _LARGE:
        _say(f"reading {' and '.join(map(str, large))} ...")
    pairs = read_word_pairs(**files)
    settings.split_sizes(len(pairs))  # refuses too few words
    prepare_folder(given["output"], settings.command)
    if on_cpu and not quiet:
        seconds = expected_seconds(settings, pairs)
        networks = 1 + settings.folds if title == "Figure 3" else len(settings.methods)
        _say(f"on this CPU about {duration(seconds)} for {networks} networks")
    with show(title, enabled=not quiet, left="about") as progress:
        found = run(settings, pairs, progress)
    claims = experiment.write_report(found, given["output"])
    content = {**asdict(settings), "device": found.device, **experiment.as_dict(found, claims)}
    _tell(title.replace(" ", "").lower(), given, experiment.text_report(found, claims), content)


@_takes(_run_words, options.SHARED, output=Path("table2"))
def table2(given: Given) -> None:
    """Table 2: match the sounds and texts of words.

    Networks learn from words whose sound and text are given as vectors; then, for each other word,
    the text that belongs to its sound is looked for among five. The folder receives the shares,
    examples right and wrong, and the paper's claims judged by them.

    For instance:  pointdep reproduce table2 --audio speech2vec/100.vec --text word2vec/100.vec

    Options
    -------
    methods: Names, comma separated. [pc,drf,drf_relative]
    draws: Random draws of the other candidates. [20]
    """
    from pointdep.experiments import table2 as experiment

    _run_words("Table 2", experiment, experiment.Table2(), experiment.run_table2, given)


@_takes(_run_words, options.SHARED, output=Path("figure3"))
def figure3(given: Given) -> None:
    """Figure 3: PMI of the sound and text of words.

    A network learns from words whose sound and text are given as vectors; drawn is their PMI, by
    that network and by others that did not see the word, with the words below zero by their
    endings. The paper's claims are judged by them.

    For instance:  pointdep reproduce figure3 --audio speech2vec/100.vec --text word2vec/100.vec

    Options
    -------
    folds: Networks for PMI out of sample, each on the other folds. [5]
    """
    from pointdep.experiments import figure3 as experiment

    _run_words("Figure 3", experiment, experiment.Figure3(), experiment.run_figure3, given)


def _run_representations(command: str, part: str, given: Given) -> None:
    """Train what is left, and tell all that the folder holds.

    Options
    -------
    objectives: Of these and variational, dm1, dm2, rpc; comma separated. [cpc,pcc,drfc]
    minutes: Training time after which a run ends, its learning rate down by then.
    precision: 32, bf16, 16 or auto; by default 32 for shallow, auto for the others.
    loss_option: Option of an objective's loss as OBJECTIVE.NAME=VALUE: cpc.temperature=0.2,
        drfc.scale=10.
    merge: Train nothing and read no images: figure and verdicts of the finished runs in the folder,
        whoever ran them.
    output: Folder for runs, figure and numbers. The same command goes on from what is there, and
        finished runs of others are merged.
    """
    from pointdep.experiments import pretraining_runs as experiments
    from pointdep.experiments.figure2 import as_dict, text_report, write_report
    from pointdep.experiments.representations import Experiment

    base = Experiment(part).quick() if given["quick"] else Experiment(part)
    base = base.with_length(given.get("iterations"), given["epochs"])
    settings = _chosen(base, {**given, "loss": _loss(given["loss_option"])})
    if given["output"] is None:
        named = f"figure2-{part}-{settings.dataset}" if command == "figure2" else command
        given["output"] = Path(named)
    output, pd_rows = given["output"], given.get("pd_rows", 0)

    def load() -> ImageSet:
        assert settings.dataset is not None
        files = given["data"], given["download"], settings.limit
        return pretrain.read_images(settings.dataset, *files, given["quiet"])

    if given["merge"]:
        found = experiments.merge_experiment(settings, output, pd_rows=pd_rows)
    else:
        pick_device(given["device"])  # refuses one that is not there
        how = {**pretrain.training_options(given), "pd_rows": pd_rows}
        # Written after each job, so that a command that is ended leaves what it has.
        how["after_each"] = lambda some: write_report(some, output)
        found = experiments.run_experiment(settings, output, load, **how)
    claims = write_report(found, output)
    content = {"part": settings.part, **as_dict(found, claims)}
    _tell(command, given, text_report(found, claims), content)


@_takes(_run_representations, _PRETRAINING, options.SHARED, part="shallow")
def figure2(given: Given) -> None:
    """Figure 2: the same encoder by CPC, PCC and D-RFC.

    Encoders are trained without labels by each objective, and a linear classifier on their features
    is evaluated along the way, beside one on raw pixels. The folder receives the runs, the figure,
    every curve, and the paper's sentences judged by them. It is made for a GPU: without one,
    --quick.

    For instance:  pointdep reproduce figure2 --part shallow --quick --data mnist/ -o figure2/

    Options
    -------
    part: shallow (RealNVP on halves of the image) or deep (AMDIM, CIFAR-10).
    dataset: mnist or cifar10; by default mnist for shallow and cifar10 for deep. digits needs no
        files.
    seeds: Runs of each objective; by default 10 shallow and 1 deep.
    iterations: Steps of a run of the shallow part. [21000]
    epochs: Passes over the images in the deep part. [300]
    evaluate_every: Between two evaluations; by default 1000 iterations (shallow) or 10 epochs
        (deep).
    together: Replicas of the shallow part that train at once; by default all.
    quick: Smaller, for a CPU: few images, short runs, small networks, 3 seeds (shallow). Options
        that are given win.
    """
    require_known("part", given["part"], ("shallow", "deep"))
    _run_representations("figure2", given["part"], given)


@_takes(_run_representations, _PRETRAINING, options.SHARED)
def simclr(given: Given) -> None:
    """SimCLR by CPC, PCC and D-RFC, beside the paper's values.

    A ResNet is trained by each objective, all else the same but the scale of its score, and a
    linear classifier on its features is evaluated along the way. Then the encoder is asked as a
    model of point-wise dependency: PMI of two views, retrieval of the second view, wrong labels. It
    is made for a GPU: without one, --quick.

    For instance:  pointdep reproduce simclr --seeds 1 --data cifar10/ -o simclr/

    Options
    -------
    dataset: cifar10 or mnist; digits needs no files. [cifar10]
    seeds: Runs of each objective. [5]
    epochs: Passes over the images of a run. [200]
    evaluate_every: Epochs between two evaluations. [20]
    pd_rows: Test images on which the encoders of drfc and cpc are asked for PMI, retrieval and
        wrong labels; 0: not at all. [10000]
    quick: Smaller, for a CPU: 2,000 images, 3 epochs, one seed, width 16, 500 images as --pd-rows.
        Options that are given win.
    """
    if given["pd_rows"] is None:
        given["pd_rows"] = 500 if given["quick"] else 10_000
    _run_representations("simclr", "simclr", given)


def _loss(pairs: list[str] | None) -> dict[str, dict[str, Any]] | None:
    """["drfc.scale=10"] -> {"drfc": {"scale": 10}}."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in (options.parse_options(pairs, "--loss-option") or {}).items():
        objective, dot, option = name.partition(".")
        if not dot or not objective or not option:
            raise InputError(f"--loss-option {name!r} must say whose it is, as drfc.scale=10")
        found.setdefault(objective, {})[option] = value
    return found or None


COMMANDS = (table1, figure1, theorem1, figure2, simclr, table2, figure3)
