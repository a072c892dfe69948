"""Rank intervals, the score above a floor, and its interquartile mean over tasks and seeds.

A rank interval begins with 1 + the number of encodings that are surely better, and ends with the number of
those that are not surely worse. Losses and accuracies are compared in pairs, by the interval of each
difference; scores of several tasks by a bootstrap over their seeds (Agarwal et al. 2021, arXiv:2108.13264),
in which an encoding is better with a chance above `CERTAIN`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import combinations, combinations_with_replacement

import numpy as np
import pandas as pd
from scipy.special import factorial

from zoo.comparison.paired import FEWEST_SEEDS, Basis, Estimate, Sample, difference

DRAWS = 4000
"""Outcomes of a bootstrap that has more than `MOST`."""
MOST = 300_000
STEPS = 100_000
"""An outcome is rounded to 1/STEPS, so that the chances of a pair are a sum."""
CERTAIN = 0.975


@dataclass(frozen=True)
class Ranking:
    """Encodings in an order, with rank intervals.

    Attributes:
        values: the best first; NaN for an encoding that cannot be read.
        better: whether the encoding of the row is better than that of the column, for those with a rank.
        behind: of losses and accuracies, the paired differences to the first.
    """

    values: dict[str, Estimate]
    better: pd.DataFrame
    behind: dict[str, Estimate] = field(default_factory=dict)

    @cached_property
    def intervals(self) -> dict[str, tuple[int, int]]:
        """The first and the last rank of each encoding."""
        ends = zip(1 + self.better.sum(axis=0), len(self.better) - self.better.sum(axis=1), strict=True)
        return {name: (int(low), int(high)) for name, (low, high) in zip(self.better, ends, strict=True)}

    def rank(self, name: str) -> str:
        """`2–9`; empty for an encoding without a rank."""
        return span(*self.intervals[name]) if name in self.intervals else ""

    def groups(self) -> list[list[str]]:
        """The encodings in groups: the first one that is worse than the leader of a group begins the next."""
        found: list[list[str]] = []
        known = {*self.better}
        for name in self.values:
            if found and not ({found[-1][0], name} <= known and self.better.loc[found[-1][0], name]):
                found[-1].append(name)
            else:
                found.append([name])
        return found


def span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}–{high}"


def of_samples(samples: Mapping[str, Sample | None], basis: Basis, lower_is_better: bool = True) -> Ranking:
    """The ranking of means by their paired differences; without ranks where one has no interval.

    Args:
        samples: None for an encoding that cannot be read, which comes last.
    """
    sign = 1 if lower_is_better else -1
    known = {name: one for name, one in samples.items() if one}
    names = sorted(known, key=lambda name: (sign * known[name].mean, name))
    apart = {
        (name, other): difference(known[name], known[other], basis)
        for other, name in [*combinations(names, 2), *((one, one) for one in names[:1])]
    }
    values = {name: known[name].estimate(basis) for name in names}
    values |= dict.fromkeys(sorted(samples.keys() - known.keys()), Estimate())
    better = pd.DataFrame(False, [*values], [*values])
    better.loc[names, [*values][len(names) :]] = True
    for (name, other), one in apart.items():
        better.loc[other, name] = one.sign == sign
    unknown = any(one.sign is None for one in apart.values())
    behind = {name: apart[name, names[0]] for name in names}
    return Ranking(values, pd.DataFrame() if unknown else better, behind)


def seed_scores(rows: pd.DataFrame, floors: Mapping[int, float]) -> pd.DataFrame:
    """The score of each encoding and seed; columns encoding, seed, score.

    The score is max(0, (x - floor) / (1 - floor)), averaged over the lengths that have a floor. A length
    without a value scores 0.

    Args:
        rows: of `Results`, with one measure from 0 to 1.
        floors: by length the value of the best strategy that does not do the task.
    """
    table = rows.groupby(["encoding", "seed", "length"], sort=False)["value"].first().unstack(sort=False)
    floor = pd.Series(floors, dtype=float)
    table = table.reindex(columns=floor.index).fillna(0.0)
    return table.sub(floor).div(1 - floor).clip(lower=0).mean(axis=1).rename("score").reset_index()


def of_scores(scores: pd.DataFrame) -> Ranking:
    """The ranking by the interquartile mean over tasks and seeds, each task with the same weight, and a
    bootstrap over the seeds of each. It has the encodings with all tasks. With fewer than `FEWEST_SEEDS`
    there are neither intervals nor ranks.

    Args:
        scores: `seed_scores` with a column task.
    """
    groups = {
        name: [one.to_numpy() for _, one in own.groupby("task", sort=False)["score"]]
        for name, own in scores.groupby("encoding")
    }
    groups = {name: own for name, own in groups.items() if len(own) == scores["task"].nunique()}
    means = {name: weighted_mean(own) for name, own in groups.items()}
    names = sorted(groups, key=lambda name: (-means[name], name))
    if min((len(one) for own in groups.values() for one in own), default=0) < FEWEST_SEEDS:
        return Ranking({name: Estimate(means[name]) for name in names}, pd.DataFrame())
    chances = pd.DataFrame({name: bootstrap(groups[name]) for name in names})
    ends = {name: np.searchsorted(chances[name].cumsum(), (1 - CERTAIN, CERTAIN)) / STEPS for name in names}
    values = {name: Estimate(means[name], *map(float, ends[name])) for name in names}
    return Ranking(values, better_than(chances))


def better_than(distributions: pd.DataFrame) -> pd.DataFrame:
    """Whether the encoding of the row is surely better than that of the column."""
    chances = distributions.to_numpy()
    below = chances.cumsum(0) - chances
    return pd.DataFrame(chances.T @ below > CERTAIN, distributions.columns, distributions.columns)


@cache
def draws_of(seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """The sets of seeds that a draw of the bootstrap may have, [K, seeds - 1], and their chances, [K].

    A draw has n - 1 of n seeds, with replacement: n of n would make the variance of a mean too small by
    (n - 1)/n (Rao and Wu 1988, doi:10.1080/01621459.1988.10478591).
    """
    size = seeds - 1
    drawn = np.array([*combinations_with_replacement(range(seeds), size)])
    times = (drawn[:, :, None] == np.arange(seeds)).sum(1)
    return drawn, factorial(size) / factorial(times).prod(1) / seeds**size


def bootstrap(groups: Sequence[np.ndarray]) -> np.ndarray:
    """The distribution of the interquartile mean of groups of scores from 0 to 1 under a bootstrap of each
    group: the chance of each multiple of 1/STEPS, [STEPS + 1]. It is exact up to `MOST` outcomes."""
    drawn, chances = zip(*(draws_of(len(own)) for own in groups), strict=True)
    sizes = [len(own) for own in chances]
    if math.prod(sizes) <= MOST:
        picks = np.indices(sizes).reshape(len(sizes), -1)
        weights = np.prod([own[pick] for own, pick in zip(chances, picks, strict=True)], axis=0)
    else:
        rng = np.random.default_rng(0)
        picks = np.array([rng.choice(len(own), DRAWS, p=own) for own in chances])
        weights = np.full(DRAWS, 1 / DRAWS)
    values = [own[sets[pick]] for own, sets, pick in zip(groups, drawn, picks, strict=True)]
    means = interquartile_mean(np.concatenate(values, axis=1), _weights([own[1:] for own in groups]))
    return np.bincount(np.rint(STEPS * means).astype(int), weights, STEPS + 1)


def weighted_mean(groups: Sequence[np.ndarray]) -> float:
    """The interquartile mean of groups of the same weight; NaN without one."""
    return float(interquartile_mean(np.concatenate(groups), _weights(groups))) if len(groups) else math.nan


def interquartile_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean of the middle half of the weight, over the last axis: values [..., N], weights [N]."""
    order = np.argsort(values, axis=-1)
    ends = np.cumsum(weights[order], axis=-1) / weights.sum()
    inside = np.diff(np.clip(ends, 0.25, 0.75), axis=-1, prepend=0.25)
    return (np.take_along_axis(values, order, -1) * inside).sum(-1) / 0.5


def _weights(groups: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.full(len(own), 1 / len(own)) for own in groups])
