"""The documentation as a site: links, spelling, the numbers that it quotes, and its names."""

import functools
import importlib
import inspect
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from typer.main import get_command

import pointdep
from pointdep import METHODS, contrastive, objectives
from pointdep.cli.app import load_commands
from pointdep.contrastive.losses import ContrastiveLoss
from pointdep.inference.checks import RatioCheck

ROOT = Path(__file__).parents[1]
TEXTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
LOADED = {"script": "src", "img": "src", "source": "srcset", "iframe": "src", "link": "href"}


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if found.get(LOADED.get(tag)):
            self.loads.append(found[LOADED[tag]])


@pytest.fixture(scope="session")
def pages(site):
    # 404.html is shown for any address, so that its links begin at the root of a server.
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def broken(pages):
    """(page, link) of each that leads nowhere on this site."""
    for path, page in pages.items():
        for link in {*page.links, *page.loads}:
            address, anchor = urldefrag(urljoin(path.as_uri(), link))
            if not address.startswith("file:"):
                continue
            target = Path(unquote(address.removeprefix("file://")))
            known = target in pages and (not anchor or unquote(anchor) in pages[target].anchors)
            picture = target not in pages and target.is_file()
            if not known and not picture:
                yield path.name, link


def test_every_link_anchor_and_image_is_there_and_nothing_from_elsewhere(pages, site):
    assert len(pages) > 40
    assert sum(len(page.links) for page in pages.values()) > 1000
    assert not list(broken(pages))
    # Navigation (<link rel=next>) is relative too: there is no address that the site belongs to.
    assert not [(p.name, load) for p, page in pages.items() for load in page.loads if ":" in load]
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text("utf-8")), style


@pytest.mark.parametrize(
    "text",
    ['<a href="b.html">', '<a href="#c">', '<a href="a.html#c">', '<img src="d.svg#only-light">'],
)
def test_a_broken_link_is_noticed(tmp_path, text):
    path = tmp_path / "a.html"
    path.write_text(f'<h1 id="b"><a href="#b"></a>{text}')
    assert [link for _, link in broken({path: Page(path)})] == [text.split('"')[1]]


def test_spelling(tmp_path):
    pytest.importorskip("codespell_lib", reason="the extra pointdep[docs] is not installed")

    def misspelt(*files):
        command = [sys.executable, "-m", "codespell_lib", *files]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout

    assert not misspelt(*TEXTS, ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*.py"))
    (tmp_path / "page.md").write_text("The dependancy of x and y.\n")
    assert "dependency" in misspelt(tmp_path / "page.md")


def test_the_methods_page_is_that_of_the_code():
    text = (ROOT / "docs/methods.md").read_text("utf-8")
    sections = dict(re.findall(r"^### `(\w+)`: (.*?)(?=^##|\Z)", text, re.M | re.S))
    assert set(sections) == set(METHODS)
    for key, section in sections.items():
        method = METHODS[key]
        if method.name != "Density-Ratio Fitting, relative form":
            assert section.startswith(method.name)
        numbers = re.findall(r"(?:Eq\.|Prop\.) \(?(\d)", f"{method.learning} {method.reading}")
        assert {*numbers} <= {*re.findall(r"(?:Eq\.|Prop\.) \(?(\d)", section)}, key
        assert re.search(r"\*\*Identifies\*\*\s(r\b|what `dv` does)", section), key


def quoted():
    """(text of docs/benchmarks.md, file of results, how to find the number, its format)."""
    yield from (
        (f"| {task} | {{:.0f}} % | {{:+.3f}} |", "coverage",
         lambda d, task=task: (100 * d["summary"][task]["coverage"], d["summary"][task]["bias"]))
        for task in ("cubic, 5-d, MI 2", "gaussian, 20-d, MI 2", "mixture-clusters", "student-3",
                     "table", "uniform-0.75")
    )  # fmt: skip
    yield from (
        (f"| `{key}` | {{:.2f}} | {{:.2f}} |", "gaussians",
         lambda d, key=key: next(
             (r["error"], r["pmi_rmse"]) for r in d["results"] if r["method"] == key))
        for key in ("cpc", "nwj", "js", "dv", "smile", "variational", "pc", "dm1", "dm2", "drf")
    )  # fmt: skip
    for name, key in (("digits", "digits"), ("mnist_halves", "mnist_halves"), ("words", "words")):
        yield ("| {:.3f} | {:.0f} % | {:.0f} % |", f"planted_{name}", lambda d, key=key: (
            d[key]["auroc"]["mean"], 100 * d[key]["false_discovery_proportion"]["mean"],
            100 * d[key]["recall"]["mean"]))  # fmt: skip
    yield "| audit | {:.1f} % |", "labels", lambda d: [100 * d["audit"]["precision_at_flipped"]]
    yield "ours | {:.1f} % |", "labels", lambda d: [
        100 * d["cleanlab_network"]["precision_at_flipped"]]  # fmt: skip
    yield "regression | {:.1f} % |", "labels", lambda d: [
        100 * d["cleanlab_logistic_regression"]["precision_at_flipped"]]  # fmt: skip
    yield "{:.0f} s and {:.1f} GiB", "audit_speed", lambda d: [d["seconds"], d["peak_gib"]]
    yield "{:.0f} s on an H200, after {:.0f} s", "figure1_speed", lambda d: [
        d["train_seconds"], d["setup_seconds"]]  # fmt: skip
    yield "{:.0f} s on two cores", "figure1_quick", lambda d: [d["train_seconds"]]
    yield "{:.2f} of the time", "replicas", lambda d: [d["ratio"]]
    yield "{:.1f} ms and {:.0f} MiB", "drfc_loss", lambda d: [
        d["drfc"]["median_ms"], d["drfc"]["peak_mib"]]  # fmt: skip
    yield "{:.2f} s on an H200, {:.2f} times", "simclr_epoch", lambda d: [
        d["compiled_drfc"]["epoch_s"], d["compiled_drfc"]["ratio"]]  # fmt: skip
    yield "| {:.0f} s | `python benchmarks/ray_score.py`", "ray_score", lambda d: [
        d["ray"]["seconds"]]  # fmt: skip
    yield "{:.0f} % of the p-values", "null", lambda d: [100 * d["share_below_0.1"]]
    yield "p = {:.2f};", "null", lambda d: [d["kolmogorov_smirnov_p"]]
    yield "{:.2f} times the seconds", "faiss_search", lambda d: [d["ours_seconds_ratio"]]


def test_the_benchmarks_page_quotes_the_results():
    text = re.sub(r"\s+", " ", (ROOT / "docs/benchmarks.md").read_text("utf-8"))
    for shape, name, find in quoted():
        results = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
        assert shape.format(*find(results)) in text, (name, shape)


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
    parts, found = name.split("."), pointdep
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


def test_a_wrong_name_command_option_or_attribute_is_noticed():
    assert list(named("`pointdep.audit`, `x = pointdep.objectives.pc(s)`, `Audit.suspects`")) == [
        "pointdep.audit", "pointdep.objectives.pc", "pointdep.Audit.suspects",
    ]  # fmt: skip
    for name in ("pointdep.audits", "pointdep.objectives.pcc", "pointdep.Audit.supects"):
        with pytest.raises(AttributeError):
            resolve(name)
    right = "`pointdep mi x.npy y.npy --check` `pointdep reproduce figure1 --quick`"
    assert not list(wrong_commands(right))
    for wrong in ("`pointdep mo x.npy`", "`pointdep mi x.npy --chek`", "`pointdep reproduce fig`"):
        assert len(list(wrong_commands(wrong))) == 1
    assert not list(unknown("`fdr=0.1` `eta=2` `model.oof_pmi_` `found.suspects` `loss.flags`"))
    wrong = ["fdrs=0.1", "model.oof_pmi", "found.suspect", "loss.flag"]
    assert list(unknown(" ".join(f"`{span}`" for span in wrong))) == wrong


def wrong_commands(text):
    """Command lines in code that name a command or an option that is not there."""
    for part in code(text):
        joined = re.sub(r"\\?\n\s+", " ", part)
        for line in re.findall(r"(?:^|\$ |-m )(pointdep [a-z][^\n#|`]*)", joined, re.M):
            words, command = line.split()[1:], get_command(load_commands())
            while words and hasattr(command, "commands"):
                command = command.commands.get(words.pop(0))
            options = [word.split("=")[0] for word in words if word.startswith("--")]
            params = getattr(command, "params", [])
            known = {"--help"}.union(*(p.opts + p.secondary_opts for p in params))
            if command is None or {*options} - known:
                yield line


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
    anchors, wanted = set(re.findall(r'id="([^"]+)"', reference)), set(public_names())
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
