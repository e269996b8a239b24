"""Whatever the data hold stays text."""

from pathlib import Path

import numpy as np

from .helpers import make_audit

HOSTILE = [
    "<script>window.hacked=1</script>",
    '"><img src=x onerror="window.hacked=2">',
    "</script><script>window.hacked=3</script>",
    "<!-- <script>",
    "{{ 7 * 7 }} {% raw %}",
    "line\u2028separator\u2029here",
    "javascript:window.hacked=4",
    "=HYPERLINK(\"http://example.org\")",
    "a\x00b\x1b[31mc",
    "\u202eright to left",
    "\udc80 lone surrogate",
    "<svg onload=window.hacked=5>",
    "&lt;b&gt;",
]  # fmt: skip


def shown(text):
    """As the browser gives it back."""
    return text.encode("utf-8", "replace").decode()


def test_texts_are_shown_as_they_are(open_page):
    labels = [*HOSTILE[:-1], None]
    audit = make_audit(np.arange(len(HOSTILE)) - 20.0, labels=labels, flags=HOSTILE[:5])
    page = open_page(audit, show_x=HOSTILE, show_y=HOSTILE[::-1], title=HOSTILE[2])
    found = page.texts("#body tr .text")  # x and y of one row after the other
    assert found[::2] == found[::-2] == [shown(text) for text in HOSTILE]
    assert page.texts(".notes strong") == [shown(text) for text in labels[:-1]]
    assert page.at("h1").text == page.driver.title == HOSTILE[2]
    assert HOSTILE[0] in page.at("section.warning").text
    page.search("onerror")
    page.wait("document.getElementById('count').textContent.startsWith('2 ')")
    assert page.js("return window.hacked === undefined")
    assert page.texts("#body img, #body script, #body svg") == []


def test_a_script_that_got_in_would_not_run(open_page, chromium):
    page = open_page(make_audit([-3.0, 1.0, 2.0]))
    for name, inner in (
        ("script", "textContent = 'window.hacked = 1'"),
        ("div", "innerHTML = '<img src=data:, onerror=window.hacked=2>'"),
    ):
        made = f"const made = document.createElement('{name}'); made.{inner}"
        page.js(f"{made}; document.body.append(made)")
    page.wait("document.images.length === 1 && document.images[0].complete")
    assert page.js("return window.hacked === undefined")
    refused = [entry["message"] for entry in chromium.get_log("browser")]
    assert any("Content Security Policy" in message for message in refused)


def test_spreadsheets_get_no_formulas(open_page):
    page = open_page(make_audit([-3.0, -2.5, 1.0]), show_x=["=1+1", "@x", 'say "a, b"'])
    page.js(
        "window.made = []; URL.createObjectURL = (blob) => { blob.text().then((t) => made.push(t));"
        "return '#' }; HTMLAnchorElement.prototype.click = () => {}"
    )
    page.show("all")
    page.at("#download").click()
    page.wait("made.length === 1")
    lines = page.js("return made[0]").splitlines()
    assert [line.split(",")[1] for line in lines[1:3]] == ["'=1+1", "'@x"]
    assert '"say ""a, b"""' in lines[3]


def test_other_files_are_names_only(open_page, tmp_path):
    names = [str(tmp_path / name) for name in ("x.svg", "x.html", "x.pdf")]
    for name in names:
        Path(name).write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='hacked=1'></svg>")
    page = open_page(make_audit([-3.0, -2.0, -1.5]), show_x=names)
    assert page.column("x") == names
    assert page.texts("#body img, #body svg") == []
