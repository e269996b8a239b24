"""Words whose sound and text share a few coordinates, and outcomes written down by hand."""

import json
from pathlib import Path

import numpy as np

from pointdep.data.word_pairs import WordPairs
from pointdep.experiments.figure3 import Figure3, WordPmi
from pointdep.experiments.table2 import Matched, Matching, Table2

SMALL = {"batch_size": 32, "epochs": 6, "hidden": (32,), "embedding_dim": 8, "device": "cpu"}
ENDS = ("ly", "s", "ing", "a")
FILES = ("results.json", "claims.md")
DOCS = Path(__file__).parents[2] / "docs"


def kept(name):
    """The results in docs/words, whose verdicts are on their page, and the page that tells them."""
    results, claims = ((DOCS / "words" / name / file).read_text("utf-8") for file in FILES)
    for claim in json.loads(results)["claims"]:
        assert f"## {claim['key']}: {claim['verdict']}\n" in claims
    return json.loads(results), (DOCS / "reproduce.md").read_text("utf-8")


def make_words(n, dim=4, noise=0.3, seed=0):
    """n words; each text is its sound, turned, plus noise."""
    random = np.random.default_rng(seed)
    audio = random.normal(size=(n, dim))
    turn = np.linalg.qr(random.normal(size=(dim, dim)))[0]
    text = audio @ turn + noise * random.normal(size=(n, dim))
    words = np.array([f"w{row}{ENDS[row % len(ENDS)]}" for row in range(n)])
    return WordPairs(words, audio.astype(np.float32), text.astype(np.float32))


def make_matching(pmi, method="pc"):
    """A matching of (n, 5) PMI, the right one first, all else as it would follow."""
    pmi = np.asarray(pmi, dtype=np.float32)
    ranks = np.array([1 + sum(other >= row[0] for other in row[1:]) for row in pmi])
    known = {"drawn": np.array([0.5, 0.7]), "positive": 0.1, "at_floor": 0.0}
    return Matching(method=method, scores=pmi, pmi=pmi, ranks=ranks, ranks_of_all=ranks, **known)


def make_matched(*matchings, words=200, **settings):
    names = tuple(found.method for found in matchings)
    test = np.array([f"t{row}" for row in range(len(matchings[0].pmi))])
    curve, asked = np.zeros((100, len(names))), Table2(methods=names, **settings)
    return Matched(asked, words, test, tuple(matchings), curve, 1.5, "cpu")


def make_pmi(in_sample, out_of_sample=None, words=None):
    seen = np.asarray(in_sample, dtype=float)
    unseen = seen if out_of_sample is None else np.asarray(out_of_sample, dtype=float)
    words = make_words(len(seen)).words if words is None else np.asarray(words)
    return WordPmi(Figure3(), len(seen) + 50, words, seen, unseen, unseen[:50], 3, 2.5, "cpu")


def verdicts(claims):
    return {claim.key: claim.verdict for claim in claims}
