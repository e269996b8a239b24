"""What the paper says of the PMI of its training words, sentence by sentence."""

from __future__ import annotations

from pointdep.experiments.words.claims import Claim, Finding, claim, every, finding
from pointdep.experiments.words.figure3 import PAPER_ENDINGS, WordPmi, endings
from pointdep.experiments.words.numbers import (
    Floats,
    Measured,
    bootstrapped,
    distance_from_gaussian,
    excess_kurtosis,
    mean,
    separation,
    share,
    skewness,
)
from pointdep.experiments.words.settings import PAPER_TEST_WORDS, PAPER_WORDS

PAPER_MEAN = 8.37
PAPER_NEGATIVE = 147
PAPER_TRAIN_WORDS = PAPER_WORDS - PAPER_TEST_WORDS
MOST_SKEWNESS, MOST_KURTOSIS, MOST_DISTANCE = 0.5, 1.0, 0.05
NEAR = 0.1  # of the larger number: two means that agree
FEWEST = 10  # negative words of which endings can be asked
_SUPPLEMENT = "supplement"
_IN, _OUT = "in sample", "out of sample"


def judge_figure3(found: WordPmi) -> list[Claim]:
    """Every sentence on the PMI of this run."""
    return [
        _gaussian(found),
        _mean_is_mi(found),
        _mean_is_theirs(found),
        _share_negative(found),
        _endings(found),
        _detects(found),
    ]


def shape(values: Floats, seed: int) -> dict[str, tuple[Measured, float]]:
    """Skewness, excess kurtosis and distance from a Gaussian, each with what is allowed."""
    return {
        "skewness": (bootstrapped(skewness, values, seed), MOST_SKEWNESS),
        "excess kurtosis": (bootstrapped(excess_kurtosis, values, seed), MOST_KURTOSIS),
        "largest difference of the distribution functions": (
            bootstrapped(distance_from_gaussian, values, seed),
            MOST_DISTANCE,
        ),
    }


def within(measured: Measured, most: float) -> bool | None:
    """Whether its size is at most so much; None where the interval holds the limit."""
    if -most <= measured.low and measured.high <= most:
        return True
    return False if measured.low > most or measured.high < -most else None


def _gaussian(found: WordPmi) -> Claim:
    told, answers = [], []
    for where, values in ((_IN, found.in_sample), (_OUT, found.out_of_sample)):
        for name, (measured, most) in shape(values, found.settings.seed).items():
            answer = within(measured, most)
            told.append(finding(f"{where}, {name}", measured, supports=answer))
            if where == _IN:
                answers.append(answer)
    return claim(
        "i",
        _SUPPLEMENT,
        "First, we find the distribution of PMI resembles a Gaussian distribution.",
        f"In sample, as in the paper: skewness within {MOST_SKEWNESS}, excess kurtosis within "
        f"{MOST_KURTOSIS:g}, and the distribution function nowhere further than {MOST_DISTANCE} "
        "from that of the Gaussian with the same mean and standard deviation.",
        every(answers),
        *told,
    )


def _mean_is_mi(found: WordPmi) -> Claim:
    seen, unseen = mean(found.in_sample), mean(found.out_of_sample)
    test = mean(found.test)
    near = abs(seen.value - unseen.value) <= NEAR * max(abs(seen.value), abs(unseen.value))
    return claim(
        "j",
        _SUPPLEMENT,
        "The mean of the PMI values is MI",
        "The mean PMI of the training words by the network that learned from them and by networks "
        f"that did not see them agree within {NEAR:.0%}: of a mutual information both would be "
        "estimates.",
        near,
        finding(f"{_IN}, nats", seen, paper=PAPER_MEAN),
        finding(f"{_OUT}, nats", unseen, supports=near),
        finding("test words, by the network of the paper, nats", test),
    )


def _mean_is_theirs(found: WordPmi) -> Claim:
    seen = mean(found.in_sample)
    near = abs(seen.value - PAPER_MEAN) <= NEAR * PAPER_MEAN
    return claim(
        "k",
        _SUPPLEMENT,
        "and our empirical estimation for it is 8.37.",
        f"The mean PMI in sample is within {NEAR:.0%} of 8.37 nats.",
        near,
        finding(f"{_IN}, nats", seen, paper=PAPER_MEAN, supports=near),
    )


def _share_negative(found: WordPmi) -> Claim:
    n, theirs = len(found.words), PAPER_NEGATIVE / PAPER_TRAIN_WORDS
    seen = share(int((found.in_sample < 0).sum()), n)
    unseen = share(int((found.out_of_sample < 0).sum()), n)
    assert seen is not None
    agrees = seen.agrees(theirs, PAPER_TRAIN_WORDS)
    return claim(
        "l",
        _SUPPLEMENT,
        "There are 147 words have negative PMI values, approximately 0.45% of the training words.",
        "The share in sample does not differ from 147 of 32,622 by more than chance explains (two "
        "shares, 95 %).",
        agrees,
        finding(_IN, seen, paper=theirs, supports=agrees, percent=True),
        finding(_OUT, unseen, percent=True),
    )


def _endings(found: WordPmi) -> Claim:
    told, answers = [], []
    for where, values in ((_IN, found.in_sample), (_OUT, found.out_of_sample)):
        enough = int((values < 0).sum()) >= FEWEST
        for line in endings(found.words, values):
            if line.ending not in PAPER_ENDINGS:
                continue
            answer = line.times.above(1.0) if line.times is not None and enough else None
            told.append(finding(f'"{line.ending}", {where}, times', line.times, supports=answer))
            if where == _IN:
                answers.append(answer)
    return claim(
        "m",
        _SUPPLEMENT,
        'the words end in "ly" and "s" are adversarial training sample in our analysis.',
        "In sample, each of the two endings is more common among the words with negative PMI than "
        f"among the others: the ratio of the shares is above 1. With fewer than {FEWEST} negative "
        "words it cannot be told.",
        every(answers),
        *told,
    )


def _detects(found: WordPmi) -> Claim:
    flagged = found.in_sample < 0
    area = separation(found.out_of_sample[flagged], found.out_of_sample[~flagged])
    answer = None if area is None or int(flagged.sum()) < FEWEST else area.above(0.5)
    both = share(int((found.out_of_sample[flagged] < 0).sum()), int(flagged.sum()))
    rest = share(int((found.out_of_sample[~flagged] < 0).sum()), int((~flagged).sum()))
    return claim(
        "n",
        _SUPPLEMENT,
        "To sum up, we demonstrate how our PD estimation approach can be used to detect "
        "adversarial training examples in a cross-modal dataset.",
        "No word is known to be wrong, so that only this can be asked: are the words with negative "
        "PMI in sample the lower ones also by networks that did not see them? The share of pairs "
        "of a flagged word and another in which the flagged one is lower is above one half.",
        answer,
        finding("flagged below another, out of sample", area, supports=answer, percent=True),
        finding("of the flagged, negative out of sample too", both, percent=True),
        finding("of the others, negative out of sample", rest, percent=True),
        Finding("training words with the audio vector of another", float(found.same_sound)),
    )
