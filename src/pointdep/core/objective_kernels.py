"""The ten methods of the paper in one kernel: what each infers, and the gradient it learns by.

One program a replica, whichever its method: the scores of a batch fit the registers of a program.
"""

from triton import jit
from triton import language as tl

CPC = tl.constexpr(0)
NWJ = tl.constexpr(1)
JS = tl.constexpr(2)
DV = tl.constexpr(3)
SMILE = tl.constexpr(4)
VARIATIONAL = tl.constexpr(5)
PC = tl.constexpr(6)
DM1 = tl.constexpr(7)
DM2 = tl.constexpr(8)
DRF = tl.constexpr(9)


@jit
def _log_mean_exp(scores, off, count):
    """log of the mean of exp over the cells `off`."""
    highest = tl.max(tl.max(tl.where(off, scores, -float("inf")), 1), 0)
    total = tl.sum(tl.sum(tl.where(off, tl.exp(scores - highest), 0.0), 1), 0)
    return highest + tl.log(total) - tl.log(count)


@jit
def objectives_kernel(scores, kinds, numbers, shifts, values, grads, N: tl.constexpr):
    """scores: (R, N, N) f32 -> values: (R,), the inferences; grads: (R, N, N), d objective.

    kinds: (R,) the method; numbers: (R,) its lambda, eta, tau or floor; shifts: (R,) what its
    read-out adds. N is a power of two.
    """
    replica = tl.program_id(0)
    row = tl.arange(0, N)[:, None]
    column = tl.arange(0, N)[None, :]
    at = replica * N * N + row * N + column
    s = tl.load(scores + at)
    kind = tl.load(kinds + replica)
    option = tl.load(numbers + replica)
    joint = row == column
    pairs = N * 1.0
    others = N * (N - 1.0)
    mean = tl.sum(tl.sum(tl.where(joint, s, 0.0), 1), 0) / pairs
    value = mean + tl.load(shifts + replica)
    if kind == CPC:
        highest = tl.max(s, 1)
        weight = tl.exp(s - highest[:, None])
        total = tl.sum(weight, 1)
        value = mean - tl.sum(highest + tl.log(total), 0) / pairs + tl.log(pairs)
        tl.store(grads + at, (tl.where(joint, 1.0, 0.0) - weight / total[:, None]) / pairs)
    elif (kind == JS) | (kind == SMILE) | (kind == VARIATIONAL) | (kind == PC):
        shift = tl.where(kind == PC, tl.log(pairs - 1.0), 0.0)
        joint_share = tl.where(kind == PC, 1.0 / (pairs * pairs), 1.0 / pairs)
        other_share = tl.where(kind == PC, 1.0 / (pairs * pairs), 1.0 / others)
        logit = s - shift
        up = joint_share * tl.sigmoid(-logit)
        tl.store(grads + at, tl.where(joint, up, -other_share * tl.sigmoid(logit)))
        if kind == JS:
            value = mean + 1.0 - tl.exp(_log_mean_exp(s, ~joint, others))
        if kind == SMILE:
            clipped = tl.minimum(tl.maximum(s, -option), option)
            value = mean - _log_mean_exp(clipped, ~joint, others)
    elif kind == DRF:
        tl.store(grads + at, tl.where(joint, 1.0 / pairs, -s / others))
        # By a comparison: on a GPU the larger of NaN and a number is the number.
        kept = tl.where(joint, tl.log(tl.where(s < option, option, s)), 0.0)
        value = tl.sum(tl.sum(kept, 1), 0) / pairs
    else:
        log_mean = _log_mean_exp(s, ~joint, others)
        weight = tl.exp(s - log_mean) / others
        factor = 1.0
        if kind == NWJ:
            factor = tl.exp(log_mean - 1.0)
            value = mean - factor
        if kind == DV:
            value = mean - log_mean
        if kind == DM1:
            factor = option * tl.exp(log_mean)
        if kind == DM2:
            factor = 2.0 * option * log_mean
        tl.store(grads + at, tl.where(joint, 1.0 / pairs, -factor * weight))
    tl.store(values + replica, value)
