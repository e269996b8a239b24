"""The part of the default critics that is not trained: canonical coordinates and correlations."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pointdep.core import objectives
from pointdep.core.linear import (
    Canonical,
    canonical_correlations,
    economical,
    gaussian_matrix,
    screened_correlations,
)
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import CanonicalMap, PickedMap
from pointdep.core.waves import MOST_PAIRS, column_pairs, find_waves
from pointdep.fitting.batches import Cells, SplitRows
from pointdep.fitting.splits import Rows

# Whether the network of a default critic earned its place.

_STOP_BLOCK = 16
_PROOF = 2.0  # standard errors


def closed_form_only(model: RatioModel) -> RatioModel:
    """A copy of the model without its network."""
    copy = model.select(range(model.replicas))
    copy.critic.silence()
    return copy


@torch.no_grad()
def drop_unproven_network(model: RatioModel, rows: SplitRows) -> bool:
    """Silence the networks of all replicas unless, on the stopping rows, they help beyond chance.

    Early stopping keeps the best of many epochs, so some network always looks better than none by
    a little; what it then adds to the closed form is noise. Compared is the log-loss per row of the
    implied classifier, with and without the network, over the stopping rows of all replicas.
    Returns whether the network stays.
    """
    without = closed_form_only(model)
    gains, numbers = [], []
    for replica, split in enumerate(rows.splits):
        cells, index = rows.held_out([split.stop], _STOP_BLOCK)
        one, other = (_losses(each.select([replica]), cells) for each in (model, without))
        gains.append(other - one)
        numbers.append(torch.from_numpy(index[index >= 0]).to(rows.x.device))
    kept = proven(torch.cat(gains), torch.cat(numbers), rows.groups)
    if not kept:
        model.critic.silence()
    return kept


def proven(gain: Tensor, rows: Tensor, groups: Tensor | None, errors: float = _PROOF) -> bool:
    """Whether the mean of gain (n,), of the rows numbered (n,), is above zero beyond chance.

    A row that stops several replicas, or a group of rows, is still one draw. errors: the standard
    errors that it takes.
    """
    error = _error_of_mean(gain, rows if groups is None else groups[rows.to(groups.device)])
    return float(gain.mean()) > errors * error


def _error_of_mean(gain: Tensor, groups: Tensor) -> float:
    """The standard error of the mean of gain (n,); rows of one group, (n,), are one draw."""
    codes = torch.unique(groups, return_inverse=True)[1].to(gain.device)
    count = int(codes.max()) + 1
    sums = gain.new_zeros(count).index_add(0, codes, gain - gain.mean())
    if count < 2:
        return math.inf
    return math.sqrt(count / (count - 1) * float(sums.square().sum())) / len(gain)


def _losses(model: RatioModel, cells: Cells) -> Tensor:
    """The classifier's log-loss of each row: its own pair, and its mean over other rows' y."""
    # The output of a critic with a closed form is log r, but for a constant.
    scores = (model.raw_blocks(cells.x, cells.y) - model.constant.view(-1, 1, 1, 1)).flatten(0, 2)
    return row_losses(scores, cells.joint.flatten(0, 1), cells.product.flatten(0, 1))


def row_losses(scores: Tensor, joint: Tensor, product: Tensor) -> Tensor:
    """Of log r and weights of cells, all (N, b): the losses of the rows that are not padding."""
    shift = product.sum(1).clamp(min=1.0).log().unsqueeze(1)
    own = (F.softplus(shift - scores) * joint).sum(1)
    return (own + (F.softplus(scores - shift) * product).sum(1))[joint.sum(1) > 0]


# Whether ranks or the values themselves are nearer to Gaussian.

_ROWS_TO_CHOOSE = 20_000  # per replica: more would take long, and the choice is clear by then


@torch.no_grad()
def plain_sides(ranked: SplitRows, plain: SplitRows) -> tuple[bool, bool]:
    """Of the normal scores of ranks and of standardised values, which x and which y should have.

    Normal scores suit columns of any shape, but they take the exact distances out of pairs that
    hardly differ. Compared is the closed form on the stopping rows: values stand in for scores if
    log r of the pairs is larger beyond chance. Heavy tails can make it larger and wrong, so the
    log-loss must be better too, by its standard error. Returns whether it is, for x and y.
    """
    chosen, most = (False, False), 0.0
    usual, numbers = _closed_form_answers(ranked)
    for combination in ((True, True), (True, False), (False, True)):
        x = (plain if combination[0] else ranked).x
        y = (plain if combination[1] else ranked).y
        gain = _closed_form_answers(replace(ranked, x=x, y=y))[0] - usual
        better = (
            proven(one, numbers, ranked.groups, errors)
            for one, errors in zip(gain, (_PROOF, 1.0), strict=True)
        )
        if float(gain[0].mean()) > most and all(better):
            chosen, most = combination, float(gain[0].mean())
    return chosen


def _closed_form_answers(rows: SplitRows) -> tuple[Tensor, Tensor]:
    """log r and minus the log-loss, (2, n), of all replicas' stopping rows, and their numbers."""
    answers, numbers = [], []
    for replica, split in enumerate(rows.splits):
        x, y, groups = rows.training(replica)
        step = 1 + len(x) // _ROWS_TO_CHOOSE
        groups = None if groups is None else groups[::step]
        found = economical([canonical_correlations], x[::step].cpu(), y[::step].cpu(), groups)[0]
        cells, index = rows.held_out([split.stop], _SHRINK_BLOCK)
        u, v = found.coordinates(cells.x.cpu(), cells.y.cpu())
        scores = gaussian_matrix(u, v, found.correlations.unsqueeze(0)).flatten(0, 2)
        joint = cells.joint[0].cpu()
        own = (scores * joint).sum(1)[joint.sum(1) > 0]
        answers.append(torch.stack([own, -row_losses(scores, joint, cells.product[0].cpu())]))
        numbers.append(torch.from_numpy(index[index >= 0]))
    return torch.cat(answers, 1), torch.cat(numbers)


Sides = tuple[Tensor, Tensor, Tensor | None]
"""x, y and groups of a replica's training rows."""

_SCALES = (0.97, 0.9, 0.75, 0.5, 0.25, 0.0)
_UNRELATED = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)  # shares of the rows
_LARGEST = 0.999
_WEIGHTED_STEPS = 3
_SHRINK_BLOCK = 32
_SMALLEST_GAIN = 1e-4
WIDEST = 64  # columns: with more, their features cost more than they give
_WORTHWHILE = 0.1  # correlation


@torch.no_grad()
def fit_closed_form(
    model: RatioModel,
    rows: SplitRows,
    canonical: Sequence[Canonical] | None = None,
    *,
    judged: int | None = None,
) -> None:
    """Fit each replica's coordinates and correlations on its training rows.

    With many columns there are two analyses: of all columns, and of those that are correlated with
    a column of the other side. The one that does better on the stopping rows of the first `judged`
    replicas stays in all. canonical: the coordinates of each replica, where they are known.
    """
    critic, x_map, y_map = model.critic, model.x_map, model.y_map
    # Those of wide rows are large, and looked at once.
    replicas = range(0 if critic.wide else model.replicas)
    training = [rows.training(replica) for replica in replicas]
    if isinstance(x_map, PickedMap) and isinstance(y_map, PickedMap):
        training = [_picked(x_map, y_map, *of_one) for of_one in enumerate(training)]
    analyses: list[Sequence[Canonical]] = [canonical] if canonical is not None else []
    if canonical is None and critic.wide:
        analyses = _wide_analyses(rows, model.replicas)
    elif canonical is None:
        analyses = [[canonical_correlations(x.cpu(), y.cpu(), groups) for x, y, groups in training]]
    if isinstance(x_map, CanonicalMap) and isinstance(y_map, CanonicalMap):
        for replica, found in enumerate(analyses[0]):
            x_map.set_linear(replica, found.x_mean, found.x_weight)
            y_map.set_linear(replica, found.y_mean, found.y_weight)
            _fit_modulated(x_map, y_map, replica, training[replica])
    if critic.label:
        side, side_map = (rows.x, x_map) if critic.label == "x" else (rows.y, y_map)
        shares = torch.stack([side[torch.from_numpy(s.train)].mean(0) for s in rows.splits])
        one_hot = torch.diag_embed(torch.ones_like(shares))  # which a rank map leaves as it is
        critic.set_levels(side_map(one_hot), shares)
    least = math.inf
    for number, analysis in enumerate(analyses):
        before = copy.deepcopy(critic.state_dict()), critic.shrunk
        for replica, found in enumerate(analysis):
            critic.set_canonical(replica, found)
        loss = _scale_down(model, rows, judged)
        if number and loss >= least:
            critic.load_state_dict(before[0])
            critic.shrunk = before[1]
        else:
            least, critic.screened = loss, type(critic).screened or number == 1
    if canonical is None and not critic.wide and bool(critic.unrelated.any()):
        _fit_related(model, rows, training, least, judged)


def _wide_analyses(rows: SplitRows, replicas: int) -> list[Sequence[Canonical]]:
    """Of all columns, and of those that are correlated with one of the other side: by replica."""
    kinds = canonical_correlations, screened_correlations
    found = []
    for replica in range(replicas):
        x, y, groups = rows.training(replica)
        found.append(economical(kinds, x.cpu(), y.cpu(), groups))
    return [[each[number] for each in found] for number in range(len(kinds))]


def _picked(x_map: PickedMap, y_map: PickedMap, replica: int, rows: Sides) -> Sides:
    """Let a replica pick columns by its training rows; these rows as it sees them."""
    x, y, groups = rows
    columns = column_pairs(*_one_each(*rows), x_map.most).columns(x_map.most)
    for side_map, own in zip((x_map, y_map), columns, strict=True):
        side_map.set_picked(replica, torch.from_numpy(own))
    return x @ x_map.picked[replica], y @ y_map.picked[replica], groups


def has_few_pairs(rows: SplitRows, most: int) -> bool:
    """Whether few columns hold what a closed form cannot see, by the first replica's rows."""
    if rows.x.shape[1] * rows.y.shape[1] > MOST_PAIRS:
        return False  # the waves of so many are not looked at
    return column_pairs(*_one_each(*rows.training(0)), most).few(most)


def _one_each(x: Tensor, y: Tensor, groups: Tensor | None) -> tuple[Tensor, Tensor]:
    """One row of each group: rows of one group are one draw."""
    if groups is None:
        return x, y
    first = np.unique(groups.cpu().numpy(), return_index=True)[1]
    return x[first], y[first]


def _fit_related(
    model: RatioModel, rows: SplitRows, training: Sequence[Sides], least: float, judged: int | None
) -> None:
    """Where a share of the pairs is taken for unrelated: the same analyses with less of these.

    Each training row has the weight of its being related, as in expectation maximisation, as long
    as the log-loss of the stopping rows falls below `least`. training: what was analysed before.
    """
    critic, x_map, y_map = model.critic, model.x_map, model.y_map
    assert isinstance(x_map, CanonicalMap)
    assert isinstance(y_map, CanonicalMap)
    for _ in range(_WEIGHTED_STEPS):
        before = copy.deepcopy(model.state_dict())
        for replica, (x, y, groups) in enumerate(training):
            means = x_map.mean[replica], y_map.mean[replica]
            one = model.select([replica])
            own = [side.unsqueeze(0) for side in rows.training(replica)[:2]]
            log_ratio = one.critic.pairs(one.x_map(own[0]), one.y_map(own[1]))[0]
            related = 1.0 - one.critic.unrelated * (-log_ratio).exp()
            weight = (related / related.mean()).clamp(min=0.0).sqrt().T
            a, b = (
                (weight * (side - mean)).cpu() for side, mean in zip((x, y), means, strict=True)
            )
            found = canonical_correlations(a, b, groups)
            x_map.set_linear(replica, means[0], found.x_weight)
            y_map.set_linear(replica, means[1], found.y_weight)
            critic.set_canonical(replica, found)
        loss = _scale_down(model, rows, judged, shares=())
        critic.shrunk = True
        if loss >= least:
            model.load_state_dict(before)
            break
        least = loss
    for replica, of_one in enumerate(training):
        _fit_modulated(x_map, y_map, replica, of_one)


def _scale_down(
    model: RatioModel, rows: SplitRows, judged: int | None, shares: Sequence[float] | None = None
) -> float:
    """Decide how far the correlations are to be trusted.

    They are all scaled down together as long as that makes the implied classifier better on the
    stopping rows, to zero where the data are nothing like Gaussian. Or they are those of a part of
    the rows, if it helps beyond chance to take one of `shares` of all for unrelated. Returns the
    mean log-loss of the stopping rows of the first `judged` replicas.
    """
    critic = model.critic
    if shares is None:
        shares = () if critic.label or critic.wide else _UNRELATED
    cells, index = rows.held_out([split.stop for split in rows.splits], _SHRINK_BLOCK)
    u, v = model.x_map(cells.x), model.y_map(cells.y)

    def scores_of(correlations: Tensor) -> Tensor:
        critic.correlations = correlations
        return critic.closed_form(u, v).flatten(1, 2)

    def value_of(correlations: Tensor) -> Tensor:
        return objectives.pc(scores_of(correlations), joint=cells.joint, product=cells.product)

    def losses_of(correlations: Tensor) -> Tensor:
        scores = scores_of(correlations)[:judged].flatten(0, 1)
        weights = (part[:judged].flatten(0, 1) for part in (cells.joint, cells.product))
        return row_losses(scores, *weights)

    def trusted(full: Tensor) -> Tensor:
        best, best_value = full, value_of(full)
        for scale in _SCALES:
            value = value_of(scale * full)
            better = value > best_value + _SMALLEST_GAIN * best_value.abs()
            best = torch.where(better.unsqueeze(1), scale * full, best)
            best_value = torch.where(better, value, best_value)
        return best

    full = critic.correlations.clone()
    best = trusted(full)
    own = index[:judged]
    numbers = torch.from_numpy(own[own >= 0]).to(rows.x.device)
    before, after = losses_of(full), losses_of(best)
    critic.shrunk = proven(before - after, numbers, rows.groups)
    chosen = 0.0, best, after
    for share in shares:
        if float(full[:judged].max()) >= _LARGEST * (1.0 - share):
            break
        critic.unrelated.fill_(share)
        other = trusted((full / (1.0 - share)).clamp(max=_LARGEST))
        losses = losses_of(other)
        if losses.mean() >= chosen[2].mean():
            break  # more of them is no better
        chosen = share, other, losses
    helps = chosen[0] > 0 and proven(after - chosen[2], numbers, rows.groups)
    share, critic.correlations, after = chosen if helps else (0.0, best, after)
    critic.shrunk = critic.shrunk or helps
    if shares:
        critic.unrelated.fill_(share)
    return float(after.mean())


def _fit_modulated(x_map: CanonicalMap, y_map: CanonicalMap, replica: int, rows: Sides) -> None:
    """Coordinates of the features [u, q, t, q u, w] that are correlated across the sides.

    They show the network what turns or grows with the size of the other coordinates, which it finds
    late or never when there are many of them. rows: the replica's training rows.
    """
    if max(side.shape[1] for side in rows[:2]) > WIDEST:
        return
    if x_map.waves:
        draws = _one_each(*rows)
        for side_map, waves in zip((x_map, y_map), find_waves(*draws, x_map.waves), strict=True):
            side_map.set_waves(replica, *waves)
    a, b = (
        side_map.select([replica]).features(side.unsqueeze(0))[0].cpu()
        for side_map, side in zip((x_map, y_map), rows[:2], strict=True)
    )
    found = canonical_correlations(a, b, rows[2])
    kept = (found.correlations > _WORTHWHILE).to(found.x_weight)
    x_map.set_modulated(replica, found.x_mean, found.x_weight[:, : len(kept)] * kept)
    y_map.set_modulated(replica, found.y_mean, found.y_weight[:, : len(kept)] * kept)


# How much of the closed form and how much of the towers is right, by rows that trained neither.

_MIXTURE_BLOCK = 64
_MOST_ROWS = 4_000  # per replica
_REACH = 30.0  # nats: farther out a cell has no more say in the fit
_LEAST_SHARE = 0.05  # of each: less helps few pairs, and may ruin those far out
_PRIOR = 1.0  # one over the variance of the weights before any cell is seen
_STEPS, _LONGEST_STEP, _PRECISION = 100, 0.5, 1e-8


@torch.no_grad()
def fit_mixture(model: RatioModel, rows: SplitRows) -> None:
    """Set log r = a closed form + b towers + c, the same in all replicas, by the stopping rows.

    Logistic regression of belonging together on the two parts. The closed form takes part where it
    helps beyond chance; b below 1 takes back what the towers are too sure of. Where the parts tell
    all pairs from all others, as of very dependent rows, they are left as large as they are.
    """
    found = [_parts(model.select([r]), rows, split.stop) for r, split in enumerate(rows.splits)]
    closed, towers, joint, product, numbers = (torch.cat(part) for part in zip(*found, strict=True))
    used = (joint + product) > 0
    target = joint[used].cpu()
    shift = (product.sum() / joint.sum()).log().cpu()
    columns = torch.stack([part[used] for part in (closed, towers, torch.ones_like(closed))], 1)
    columns = columns.clamp(-_REACH, _REACH).cpu().double()  # not every device has float64
    alone = _logistic(columns[:, 1:], target, shift)
    both = _logistic(columns, target, shift)
    chosen = (0.0, *alone)
    if min(both[:2]) >= _LEAST_SHARE:
        losses = [
            row_losses(a * closed + b * towers + c, joint, product) for a, b, c in (chosen, both)
        ]
        if proven(losses[0] - losses[1], numbers, rows.groups):
            chosen = both
    model.critic.set_mixture(*chosen)


def _parts(model: RatioModel, rows: SplitRows, stop: Rows) -> tuple[Tensor, ...]:
    """Both parts of log r, joint and product weights, (N, b) each, and the rows' numbers, (n,).

    model: of one replica.
    """
    some = np.random.default_rng([rows.seed, 8]).permutation(stop)[:_MOST_ROWS]
    cells, index = rows.held_out([some], _MIXTURE_BLOCK)
    u, v = model.x_map(cells.x), model.y_map(cells.y)
    scores = (model.critic.closed_form(u, v), model.critic.network(u, v))
    parts = (*(part.flatten(0, 2) for part in scores), cells.joint[0], cells.product[0])
    numbers = torch.from_numpy(index[index >= 0]).to(rows.x.device)
    # Of fewer rows than make a block, replicas may have unequally many.
    return *(F.pad(part, (0, _MIXTURE_BLOCK - part.shape[1])) for part in parts), numbers


def _logistic(columns: Tensor, target: Tensor, shift: Tensor) -> tuple[float, ...]:
    """Weights of the columns (N, k) of log r, by the cells' being pairs or not, target: (N,).

    The last column is of ones. A prior holds the weights where the parts have equal shares of 1: it
    decides where no cell does, because all pairs score above all others and any larger weights
    would separate them better.
    """
    held = columns.new_zeros(columns.shape[1])
    held[:-1] = 1.0 / (len(held) - 1)
    prior = _PRIOR * torch.eye(len(held), dtype=columns.dtype)
    weights = held.clone()
    for _ in range(_STEPS):
        belongs = torch.sigmoid(columns @ weights - shift)
        gradient = columns.T @ (belongs - target) + prior @ (weights - held)
        spread = columns * (belongs * (1 - belongs)).unsqueeze(1)
        step = torch.linalg.solve(columns.T @ spread + prior, gradient)
        # Bounded, so that the first steps do not overshoot.
        step = step / max(1.0, float(step.abs().max()) / _LONGEST_STEP)
        weights = weights - step
        if float(step.abs().max()) < _PRECISION:
            break
    return tuple(weights.tolist())
