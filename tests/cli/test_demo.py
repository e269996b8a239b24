"""`pointdep demo`, which takes half a minute and is run once."""

import base64
import contextlib
import io
import json

import numpy as np
import pytest
from PIL import Image

from pointdep import audit
from pointdep.auditing.report.wording import caveat
from pointdep.cli import demo
from pointdep.cli.app import run
from pointdep.data.images import digit_halves


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What is printed, for a program and for a person, the page and the audit behind them."""
    page, found, printed = tmp_path_factory.mktemp("demo") / "page.html", [], []

    def once(*arguments, **options):
        found.append(found[0] if found else audit(*arguments, **options))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pointdep.auditing.audit.audit", once)
        for more in (["--json"], []):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                assert run(["demo", "--quiet", "-o", str(page), *more]) == 0
            printed.append(out.getvalue())
    return *printed, page, found[0]


@pytest.fixture(scope="module")
def content(shown):
    assert shown[0].count("\n") == 1
    return json.loads(shown[0])


def test_swaps_are_found(content, check_json):
    check_json("demo", content)
    assert content["command"] == "demo"
    low, high = content["estimate"]["ci"]
    assert 0 < low < content["estimate"]["nats"] < high
    assert (content["estimate"]["rows"], content["planted"]) == (1797, 90)
    # A random order would put 5% of them, four or five, among the lowest 90.
    assert min(content["planted_among_lowest"], content["planted_below_zero"]) >= 45
    assert content["below_zero"] - content["planted_below_zero"] <= 0.1 * (1797 - 90)
    assert content["planted_suspects"] >= content["suspects"] / 2 > 0


def test_counts_against_a_plain_recount(content, shown):
    pmi, swapped = shown[3].table["pmi"], digit_halves(swapped=0.05, seed=0).swapped
    lowest = sorted(range(1797), key=lambda row: pmi[row])
    assert content["planted_among_lowest"] == sum(swapped[row] for row in lowest[:90])
    assert content["below_zero"] == sum(value < 0 for value in pmi)
    assert content["planted_below_zero"] == sum(pmi[row] < 0 for row in np.flatnonzero(swapped))
    suspects = np.flatnonzero(shown[3].table["suspect"])
    assert content["suspects"] == len(suspects)
    assert content["planted_suspects"] == sum(swapped[row] for row in suspects)
    assert [entry["row"] for entry in content["lowest"]] == lowest[:10]
    marks = [bool(swapped[row]) for row in lowest[:10]]
    assert [entry["swapped"] for entry in content["lowest"]] == marks


def test_what_a_person_reads(content, shown):
    out, found = shown[1], shown[3]
    estimate = content["estimate"]
    assert f"{estimate['nats']:.3f} nats ({estimate['bits']:.3f} bits)" in out
    for entry in content["lowest"]:
        swapped = "yes" if entry["swapped"] else "no"
        assert f"{entry['row']:>8} {entry['pmi']:>8.2f}  {swapped}\n" in out
    caught, below = content["planted_among_lowest"], content["planted_below_zero"]
    others = content["below_zero"] - below
    assert f"{caught} of the 90 planted swaps are among the 90 pairs of lowest PMI" in out
    assert f"{below} have a PMI below zero,\nand so have {others} of the 1707 pairs" in out
    assert f"{content['suspects']} suspects,\n{content['planted_suspects']} of them planted" in out
    assert max(map(len, out.split("\n\n", 1)[1].split("\nOpen ")[0].splitlines())) <= 100
    assert (caveat(found) in " ".join(out.split())) is not found.check.passed


def test_the_page_and_its_pictures(content, shown, capsys):
    assert content["output"] == str(shown[2])
    data = json.loads(shown[2].read_text("utf-8").split('id="data">')[1].split("</script>")[0])
    halves = digit_halves(swapped=0.05, seed=0)
    for side, expected in (("x", halves.x), ("y", halves.y)):
        assert len(data["media"][side]) == 1797
        kind, number = data["media"][side]["17"]
        assert kind == "image"
        address = data["media"]["contents"][number]
        picture = Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))
        pixels = np.asarray(picture, dtype=float).ravel()
        np.testing.assert_allclose(pixels, expected[17] * 255 / 16, atol=1)
    assert demo._picture(np.zeros(32), np.full(32, 16.0)) == [" " * 16] * 4 + ["@" * 16] * 4
    assert run(["demo", "-o", "nowhere/page.html"]) == 2
    assert "the folder nowhere does not exist" in capsys.readouterr().err
