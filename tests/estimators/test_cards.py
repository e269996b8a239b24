"""What a notebook shows: every value escaped, no scripts, no colours of its own, small."""

from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.pointwise.helpers import small
from pointdep import ClassicalDependency, ConditionalDependency, from_embeddings, mi_against_n
from pointdep.display.html_repr import card, columns
from pointdep.errors import PointdepWarning
from pointdep.inference.mutual_information import MIEstimate
from pointdep.workflow.comparison import compare
from refusals import quietly


class Reader(HTMLParser):
    """What a browser makes of it: tags and the text in between; all that was opened is closed."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.text, self.styles = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        self.styles += [value for name, value in attrs if name == "style"]
        assert all(not name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def shown():
    """Something of each kind, by its name."""
    x, noise = np.random.default_rng(0).standard_normal((2, 80, 3))
    y = x + noise
    with quietly(PointdepWarning):
        model = small().fit(x, y)
        cca, ksg = (ClassicalDependency(m, progress=False).fit(x, y) for m in ("cca", "ksg"))
        return {
            "PointwiseDependency": model,
            "PointwiseDependency, not fitted": small(),
            "CalibratedDependency": from_embeddings(x, y, progress=False),
            "ClassicalDependency": cca,
            "ConditionalDependency": ConditionalDependency(small()).fit(x, y[:, :1], y[:, 1:]),
            "phsic": ClassicalDependency("phsic", progress=False).fit(x, y),
            "Mutual information": model.mutual_information(),
            "slope": model.check(),
            "candidates": model.retrieve(x[:7], y, k=6),
            "Difference": compare(cca, ksg),
            "against the number of rows": mi_against_n(cca, x, y, sizes=[50, 80]),
        }


def test_every_kind_says_what_was_found(shown):
    for name, one in shown.items():
        html = one._repr_html_()
        reader = Reader(html)
        assert name in " ".join(reader.text)
        assert set(reader.tags) <= {"div", "table", "tr", "th", "td"}
        assert "color" not in " ".join(reader.styles).replace("border", "")
        assert "http" not in html
        assert len(html) < 6000, name
    model = shown["PointwiseDependency"]
    text = " ".join(Reader(model._repr_html_()).text)
    assert model.mutual_information().headline in text
    assert f"80 rows, 3 columns of X, {len(model.encoder_y_.names)} of Y" in text
    assert all(str(flag) in text for flag in model.flags_)
    assert "max_epochs=3" in text
    assert "slope of the logits" in shown["CalibratedDependency"]._repr_html_()
    other = MIEstimate(0.5, 0.1, (0.3, 0.7), estimates="squared-loss MI", null_p=0.025, shuffles=39)
    text = " ".join(Reader(other._repr_html_()).text)
    assert "Squared-loss mi 0.500" in text
    assert "nats" not in text
    assert "p <= 0.025 for independence" in text
    bundle = model._repr_mimebundle_(include=None, exclude=None)  # a notebook asks for both
    assert bundle == {"text/plain": repr(model), "text/html": model._repr_html_()}


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)


@settings(deadline=None)
@given(TEXT, TEXT, TEXT, TEXT)
def test_any_text_is_shown_as_it_is(title, name, value, note):
    reader = Reader(card(title, [(name, value)], notes=[note], table=columns([name], [[value]])))
    assert "".join(reader.text) == f"{title}{name}{value}⚠ {note}{name}{value}"
    assert " ".join(reader.tags) == "div div table tr th td div div table tr th tr td"
