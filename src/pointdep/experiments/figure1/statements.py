"""What the paper says of Figure 1, sentence by sentence, each with the rule that judges it."""

from __future__ import annotations

from dataclasses import dataclass

from pointdep.core.methods import LOWER_BOUNDS, PAPER_METHODS
from pointdep.experiments.figure1 import questions as ask

OURS = "pointdep"
_DIFFERENCE = "difference of mean |bias|, nats"
_BIAS_RATIO = "ratio of mean |bias|"
_RATIO = "ratio of standard deviations"
_BIAS_SLOPE = "slope of |bias| against MI"
_SPREAD_SLOPE = "slope of log standard deviation against MI, 1/nat"
_BOTH = "how many of the two grow with MI"
_VARIANCE_SLOPE = f"slope of log variance against MI, {ask.HIGHEST} highest levels, 1/nat"
_LARGER_THAN = "how many it is larger than"
_SMALLER_THAN = "how many it is smaller than"


@dataclass(frozen=True)
class Statement:
    """A sentence, whose it is, and how it is judged.

    Attributes
    ----------
    key: a letter for each thing said, with a number where a sentence says several about it.
    source: "main text" or "supplement" of the paper, or "pointdep" for what is ours.
    quote: the sentence, shortened; in [] what the paper does not say in these words.
    rule: when it holds, in words. It does not hold when the numbers clearly say the contrary, and
        otherwise it cannot be told.
    quantity: what the numbers are.
    """

    key: str
    source: str
    quote: str
    rule: str
    quantity: str
    judge: ask.Judge


STATEMENTS = (
    Statement(
        "a",
        "main text",
        "Most of the estimators have [...] larger bias [...] with larger ground truth MI.",
        "|bias| grows with MI (least-squares slope above 0) on more than half of the curves: ten "
        "methods on each task. Methods that were not run count as unknown.",
        _BIAS_SLOPE,
        ask.most_of(ask.grows("bias", methods=PAPER_METHODS)),
    ),
    Statement(
        "b",
        "main text",
        "Most of the estimators have [...] larger [...] variance with larger ground truth MI.",
        "As a, for the logarithm of the standard deviation.",
        _SPREAD_SLOPE,
        ask.most_of(ask.grows("spread", methods=PAPER_METHODS)),
    ),
    Statement(
        "ab",
        "main text",
        "Most of the estimators have both larger bias and variance with larger ground truth MI.",
        "On more than half of the curves both grow: |bias| as in a and the standard deviation as "
        "in b.",
        _BOTH,
        ask.most_of(ask.both_grow(PAPER_METHODS)),
    ),
    Statement(
        "c1",
        "main text",
        "The only exception is CPC, where its value is upper bounded by log(batch_size).",
        "That no value is above log(batch_size) is so by construction, and says nothing. It is "
        f"asked whether the bound is what stops it: at the highest level, the mean of CPC is above "
        f"{ask.REACHED:g} log(batch_size), and at every level above log(batch_size) it stays below "
        "that, on every task.",
        "mean at the highest level, nats",
        ask.all_of(ask.stops_at_log_batch),
    ),
    Statement(
        "c2",
        "main text",
        "The only exception [to both larger bias and variance with larger MI] is CPC [...]",
        "CPC does not have both: |bias| or standard deviation falls with MI (slope below 0), on "
        "every task.",
        _BOTH,
        ask.all_of(ask.not_both_grow("cpc")),
    ),
    Statement(
        "c3",
        "main text",
        "The only exception is CPC [...] [no other method is one]",
        "|bias| and standard deviation of each of the nine others grow with MI, on every task.",
        "slope of |bias| or of log standard deviation against MI",
        ask.all_of(ask.grows("bias", "spread", methods=ask.BUT_CPC)),
    ),
    Statement(
        "d",
        "main text",
        "The bias is also larger in Gaussian task than in Cubic task except for DV.",
        "|bias| is larger on the Gaussian task for each of the nine others, and smaller for DV.",
        _DIFFERENCE,
        ask.all_of(ask.more_on_gaussian),
    ),
    Statement(
        "e",
        "main text",
        "CPC has the smallest variance",
        "The standard deviation of each of the nine others is larger, on every task.",
        _RATIO,
        ask.all_of(ask.larger("spread", ask.BUT_CPC, ("cpc",))),
    ),
    Statement(
        "f",
        "main text",
        "yet it [CPC] is highly biased.",
        "|bias| of CPC is larger than that of more than half of the nine others, on every task.",
        _LARGER_THAN,
        ask.all_of(ask.beside_most("bias", ("cpc",), ask.BUT_CPC, above=True)),
    ),
    Statement(
        "g1",
        "main text",
        "SMILE/ Variational MI Bounds/ Probabilistic Classifier/ Density Matching I & II/ "
        "Density-Ratio Fitting approaches have a much lower bias [than CPC].",
        f"Mean |bias| of CPC is more than {ask.MUCH:g} times that of each of the six, on every "
        f"task. The paper does not say how much is much: the factor {ask.MUCH:g} is ours.",
        _BIAS_RATIO,
        ask.all_of(ask.larger("log bias", ("cpc",), ask.LOW_BIAS, times=ask.MUCH)),
    ),
    Statement(
        "g2",
        "main text",
        "Although having larger variance than CPC [the same six]",
        "The standard deviation of each of the six is larger than that of CPC, on every task.",
        _RATIO,
        ask.all_of(ask.larger("spread", ask.LOW_BIAS, ("cpc",))),
    ),
    Statement(
        "h",
        "main text",
        "Among them, Probabilistic Classifier and Density-Ratio Fitting approaches have the "
        "smallest variance.",
        "The standard deviation of SMILE, Variational, DM I and DM II is larger than that of PC "
        "and than that of DRF, on every task.",
        _RATIO,
        ask.all_of(
            ask.larger("spread", ("smile", "variational", "dm1", "dm2"), ("pc", "drf")),
        ),
    ),
    Statement(
        "i1",
        "main text",
        "NWJ/ JS/ DV, whereas, have both large variance [...]",
        "The standard deviation of each of the three is larger than that of more than half of the "
        "six of g1, on every task.",
        _LARGER_THAN,
        ask.all_of(ask.beside_most("spread", ask.NOISY, ask.LOW_BIAS, above=True)),
    ),
    Statement(
        "i2",
        "main text",
        "NWJ/ JS/ DV, whereas, have both large [...] bias.",
        "As i1, for |bias|.",
        _LARGER_THAN,
        ask.all_of(ask.beside_most("bias", ask.NOISY, ask.LOW_BIAS, above=True)),
    ),
    Statement(
        "j",
        "main text",
        "JS has larger variance is because using I_NWJ objective during inference.",
        "The standard deviation of JS is larger than that of Variational and of SMILE, which learn "
        "the same and infer otherwise, on every task.",
        _RATIO,
        ask.all_of(ask.larger("spread", ("js",), ("variational", "smile"))),
    ),
    Statement(
        "k1",
        "main text",
        "plug-in MI estimators enjoy smaller variance [...] when comparing to most of the lower "
        "bound methods.",
        "The standard deviation of each of the five plug-in methods is smaller than that of more "
        "than half of the five lower bounds (Table 1), on every task.",
        _SMALLER_THAN,
        ask.all_of(ask.beside_most("spread", ask.PLUG_INS, LOWER_BOUNDS, above=False)),
    ),
    Statement(
        "k2",
        "main text",
        "plug-in MI estimators enjoy smaller [...] bias when comparing to most of the lower bound "
        "methods.",
        "As k1, for |bias|.",
        _SMALLER_THAN,
        ask.all_of(ask.beside_most("bias", ask.PLUG_INS, LOWER_BOUNDS, above=False)),
    ),
    Statement(
        "l1",
        "supplement",
        "the variance of an empirical I_NWJ estimation is Omega(e^I(X;Y)) [...] We verify these "
        "facts in our experiments.",
        "The logarithm of the variance of NWJ grows by at least 1 for each nat of MI over the "
        f"{ask.HIGHEST} highest levels, on every task: the 95 % interval of the slope lies above "
        "1, or below it for the contrary. Omega(e^MI) is asymptotic, which is why the lower levels "
        "are left out (there, the variance of E_J[s] is the larger part), and speaks of the best "
        "critic: judged is whether trained networks show it at these levels, not the theorem.",
        _VARIANCE_SLOPE,
        ask.all_of(ask.like_exponential("nwj")),
    ),
    Statement(
        "l2",
        "supplement",
        "the limiting variance of an empirical I_DV estimation is Omega(e^I(X;Y)) [...] We verify "
        "these facts in our experiments.",
        "As l1, for DV.",
        _VARIANCE_SLOPE,
        ask.all_of(ask.like_exponential("dv")),
    ),
    Statement(
        "l3",
        "supplement",
        "this estimation method [JS] still considers I_NWJ as its inference objective, and "
        "therefore the variance is still Omega(e^I(X;Y)). Empirical results are shown in our "
        "experiments.",
        "As l1, for JS.",
        _VARIANCE_SLOPE,
        ask.all_of(ask.like_exponential("js")),
    ),
    Statement(
        "m",
        "supplement",
        "I_JS may encounter a relatively higher training instability [than the classifier] (unless "
        "a particular take-care on its numerical instability).",
        "It holds if on every task Variational or SMILE, which learn I_JS, has values that are not "
        "finite and PC has none. Otherwise it cannot be told: the care that the paper excepts is "
        "taken here (I_JS is learnt by softplus, the classifier by the cross-entropy of logits), "
        "so that a calm run is what the sentence allows. The standard deviations, of Variational "
        "over PC, are given and not counted: the two also weigh mismatched pairs differently.",
        f"{_RATIO} (not counted)",
        ask.all_of(ask.blows_up_beside_pc),
    ),
    Statement(
        "n1",
        "supplement",
        "we can expect a smaller bias when comparing I_NWJ to I_CPC. [...] We verify these facts "
        "in our experiments.",
        "|bias| of CPC is larger than that of NWJ, on every task.",
        _DIFFERENCE,
        ask.all_of(ask.larger("bias", ("cpc",), ("nwj",))),
    ),
    Statement(
        "n2",
        "supplement",
        "we can expect a smaller bias when comparing I_DV to I_CPC. [...] We verify these facts "
        "in our experiments.",
        "|bias| of CPC is larger than that of DV, on every task.",
        _DIFFERENCE,
        ask.all_of(ask.larger("bias", ("cpc",), ("dv",))),
    ),
    Statement(
        "o",
        "supplement",
        "it [SMILE] is empirically admitting a small variance, which we also find in our "
        "experiments.",
        "The standard deviation of NWJ, JS and DV, whose variance SMILE is to mend, is larger than "
        "that of SMILE, on every task.",
        _RATIO,
        ask.all_of(ask.larger("spread", ask.NOISY, ("smile",))),
    ),
    Statement(
        "p",
        OURS,
        "DM II, read out as the paper prints it, is 1/(2 eta) = 0.5 above DM I.",
        "At the lowest level, the bias of DM II less that of DM I, which fits the same likelihood "
        f"and reads out right, lies within {ask.NEAR:g} of 0.5 nats with its whole 95 % interval, "
        "on every task; wholly outside of that for the contrary.",
        "difference of bias at the lowest level, nats",
        ask.all_of(ask.half_nat_above_dm1),
    ),
)
