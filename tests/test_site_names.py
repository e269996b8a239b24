"""The names in the documentation: what it calls is there, and what is there is in the reference."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from pathlib import Path

import pytest
from typer.main import get_command

import pointdep
from pointdep import METHODS, contrastive, objectives
from pointdep.cli.app import app
from pointdep.contrastive.losses import ContrastiveLoss
from pointdep.inference.checks import RatioCheck

ROOT = Path(__file__).parents[1]
TEXTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
# Variables of the examples, and what may be asked of them.
VARIABLES = r"(?:model|found|report|best|again|loss|check)"
# Options of other libraries that are spoken of.
OTHERS = {"strategy", "drop_last", "create_graph", "gather_distributed", "fullgraph"}


def spans(text):
    """What stands between backticks."""
    rest = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", rest)


def code(text):
    """What stands in code blocks and spans."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    indented = re.findall(r"^    .*", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return [*blocks, *spans(text), *indented]


def resolve(name):
    """The module or object of a dotted name; AttributeError where there is none."""
    parts = name.split(".")
    found = pointdep
    for end in range(1, len(parts)):
        try:
            found = getattr(found, parts[end])
        except AttributeError:
            try:
                found = importlib.import_module(".".join(parts[: end + 1]))
            except ImportError:
                raise AttributeError(name) from None
    return found


def named(text):
    """The dotted names of ours in code: pointdep.x, and Class.y for what pointdep exports."""
    exported = {name: f"pointdep.{name}" for name in pointdep.__all__}
    exported |= {name: f"pointdep.contrastive.{name}" for name in contrastive.__all__}
    for part in code(text):
        yield from re.findall(r"(?<![\w/.\-])pointdep(?:\.[A-Za-z_]\w*)+", part)
        for name, rest in re.findall(r"(?<![\w.])([A-Z]\w+)((?:\.[A-Za-z_]\w*)+)", part):
            if name in exported:
                yield exported[name] + rest


def test_a_name_that_does_not_exist_is_noticed():
    assert list(named("`pointdep.audit`, `x = pointdep.objectives.pc(s)`, `Audit.suspects`")) == [
        "pointdep.audit", "pointdep.objectives.pc", "pointdep.Audit.suspects",
    ]  # fmt: skip
    for name in ("pointdep.audits", "pointdep.objectives.pcc", "pointdep.Audit.supects"):
        with pytest.raises(AttributeError):
            resolve(name)


def wrong_commands(text):
    """Command lines in code that name a command or an option that is not there."""
    for part in code(text):
        joined = re.sub(r"\\?\n\s+", " ", part)
        for line in re.findall(r"(?:^|\$ |-m )(pointdep [a-z][^\n#|`]*)", joined, re.M):
            words, command = line.split()[1:], get_command(app)
            while words and hasattr(command, "commands"):
                command = command.commands.get(words.pop(0))
            options = [word.split("=")[0] for word in words if word.startswith("--")]
            params = getattr(command, "params", [])
            known = {"--help"}.union(*(p.opts + p.secondary_opts for p in params))
            if command is None or {*options} - known:
                yield line


def test_a_wrong_command_is_noticed():
    right = "`pointdep mi x.npy y.npy --check` `pointdep reproduce figure1 --quick`"
    assert not list(wrong_commands(right))
    for wrong in ("`pointdep mo x.npy`", "`pointdep mi x.npy --chek`", "`pointdep reproduce fig`"):
        assert len(list(wrong_commands(wrong))) == 1


def public_names():
    """What the reference has to hold, as anchors: names, and the calls of classes of ours."""
    public = [getattr(pointdep, name) for name in pointdep.__all__]
    for module in (pointdep, contrastive):
        for name in module.__all__:
            if name == "__version__":
                continue
            path, value = f"{module.__name__}.{name}", getattr(module, name)
            yield path
            if inspect.isclass(value) and not issubclass(value, ContrastiveLoss):
                for base in value.__mro__:
                    if base is not value and base in public:
                        break  # what it inherits stands there
                    if base.__module__.startswith("pointdep"):
                        members = (m for m in vars(base).items() if not m[0].startswith("_"))
                        yield from (f"{path}.{m}" for m, v in members if callable(v))


def test_the_reference_is_complete(site):
    reference = "".join(path.read_text("utf-8") for path in (site / "api").glob("*.html"))
    anchors = set(re.findall(r'id="([^"]+)"', reference))
    wanted = set(public_names())
    assert {"pointdep.audit", "pointdep.PointwiseDependency.pmi"} <= wanted
    assert not wanted - anchors


def classes():
    """Those whose objects a user meets."""
    modules = (pointdep, contrastive)
    public = [getattr(module, name) for module in modules for name in module.__all__]
    results = [pointdep.retrieval.metrics.RetrievalMetrics, RatioCheck, ContrastiveLoss]
    return [*(value for value in public if inspect.isclass(value)), *results]


@functools.cache
def known_options():
    """Every argument of everything that a user may call, and the options of methods."""
    found = {name for method in METHODS.values() for name in method.options}
    modules = (pointdep, contrastive, objectives)
    functions = [getattr(module, name) for module in modules for name in module.__all__]
    for owner in classes():
        functions += [owner, *(v for _, v in inspect.getmembers(owner, inspect.isroutine))]
    for function in functions:
        try:
            found |= set(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            continue  # a mapping, a version, or written in C
    return found


@functools.cache
def known_members():
    """Attributes of the objects, with those that a fit sets (named in a docstring)."""
    found = set()
    for owner in classes():
        found |= {*dir(owner), *getattr(owner, "__annotations__", ())}
        found |= set(re.findall(r"\b\w+_\b", owner.__doc__ or ""))
    return found


def unknown(text):
    """Options (`name=value`) and attributes (`model.name`) in spans that do not exist."""
    options, members = known_options() | OTHERS, known_members()
    for span in spans(text):
        option = re.match(r"([a-z]\w*)=(?!=)", span)
        member = re.match(VARIABLES + r"\.(?!(?:csv|html|json|md)\b)(\w+)", span)
        if (option and option[1] not in options) or (member and member[1] not in members):
            yield span


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_command_option_and_attribute_exists(path):
    text = path.read_text("utf-8")
    for name in named(text):
        resolve(name)
    assert not list(wrong_commands(text))
    assert not list(unknown(text))


def test_an_unknown_option_or_attribute_is_noticed():
    assert not list(unknown("`fdr=0.1` `eta=2` `model.oof_pmi_` `found.suspects` `loss.flags`"))
    wrong = ["fdrs=0.1", "model.oof_pmi", "found.suspect", "loss.flag"]
    assert list(unknown(" ".join(f"`{span}`" for span in wrong))) == wrong
