"""Scores above the floor, their interquartile mean, and places with intervals.

A place is 1 + the number of encodings that are better with a probability above `CERTAIN`. Its interval ends
with the number of encodings that are not worse with that probability (Agarwal et al. 2021, arXiv:2108.13264,
has the interquartile mean and the stratified bootstrap). With three seeds the bootstrap is exact: it has all
outcomes with their probabilities.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, combinations_with_replacement
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import factorial

from board.measured import LEARNED, Measured
from board.pairs import Estimate, Spread, UnitLosses, mean_over_lengths

DRAWS = 4000
"""Outcomes of a bootstrap that has more than `MOST`."""
MOST = 300_000
STEPS = 100_000
"""An outcome is rounded to 1/STEPS, so that the chances of a pair are a sum."""
CERTAIN = 0.975
FEWEST = 3
"""Seeds of each study, below which the encodings have no places, and scores of tasks no intervals."""
Floors = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
"""By study, measure, length and strategy."""


def read_floors(stored: Path) -> Floors:
    return json.loads((stored / "floors.json").read_text())


def highest(floors: Floors, study: str, measure: str, length: int) -> tuple[float, str]:
    """The score of the best strategy that does not do the task, and its name."""
    known = floors[study][measure][str(length)]
    strategy = max(known, key=known.__getitem__)
    return known[strategy], strategy


def floors_by_length(floors: Floors, study: str, measure: str, lengths: Sequence[int]) -> str:
    """`16: 0.78, 32: 0.78`."""
    return ", ".join(f"{length}: {highest(floors, study, measure, length)[0]:.2f}" for length in lengths)


def above(floors: Floors, study: str, measure: str, length: int, value: float) -> float:
    """The part of the way from the floor to 1 that a score has come; 0 below the floor."""
    floor, _ = highest(floors, study, measure, length)
    return max(0.0, (value - floor) / (1 - floor))


def seed_scores(one: Measured, floors: Floors) -> pd.DataFrame:
    """The score of each seed of a task; columns encoding, seed, score.

    The score is max(0, (x - floor) / (1 - floor)), averaged over the lengths above the trained one or those
    that the study names. A length at which an encoding cannot be read scores 0.
    """
    found = []
    for (name, seed), own in one.rows.groupby(["name", "seed"], sort=False):
        values = own[own["measure"] == one.measure].set_index("length")["value"]
        lengths = one.study.scored.lengths or [at for at in own["length"].unique() if at > one.trained]
        scores = [above(floors, one.title, one.measure, at, values.get(at, 0.0)) for at in lengths]
        found.append((name, seed, float(np.mean(scores))))
    return pd.DataFrame(found, columns=["encoding", "seed", "score"])


def learned_seeds(one: Measured) -> set[tuple[str, int]]:
    """The encodings and seeds that have learned a task."""
    rows = one.rows
    whole = rows[(rows["measure"] == "accuracy") & (rows["length"] == one.trained)]
    return {*whole[whole["value"] >= LEARNED][["name", "seed"]].itertuples(index=False, name=None)}


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


def interquartile_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean of the middle half of the weight, over the last axis: values [..., N], weights [N]."""
    order = np.argsort(values, axis=-1)
    ends = np.cumsum(weights[order], axis=-1) / weights.sum()
    inside = np.diff(np.clip(ends, 0.25, 0.75), axis=-1, prepend=0.25)
    return (np.take_along_axis(values, order, -1) * inside).sum(-1) / 0.5


@dataclass(frozen=True)
class Board:
    """Encodings in an order, with places.

    Attributes:
        values: of each encoding, the best first; None where it cannot be read.
        better: whether the encoding of the row is better than that of the column; empty with few seeds.
        without: for each task the places if it is left out; with few seeds, the ranks.
        seeds: the scores of the seeds, by task.
        behind: of losses, the paired differences to the first one.
        spread: of losses with few seeds, that over the seeds of the encodings that have more.
    """

    values: dict[str, Estimate | None]
    better: pd.DataFrame
    without: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    seeds: dict[str, pd.DataFrame] = field(default_factory=dict)
    behind: dict[str, Estimate | None] = field(default_factory=dict)
    spread: Spread | None = None

    def places(self) -> dict[str, tuple[int, int]]:
        """The first and the last place of each encoding."""
        return places_of(self.better)

    def place(self, name: str) -> str:
        """`2–9`; empty for an encoding without a place."""
        places = self.places()
        return _span(places[name]) if name in places else ""

    def place_without_a_task(self, name: str) -> str:
        """The range of places if any one task is left out."""
        ends = [own[name] for own in self.without.values() if name in own]
        return _span((min(low for low, _ in ends), max(high for _, high in ends))) if ends else ""

    def groups(self) -> list[list[str]]:
        """The encodings in groups: the first one that is worse than the leader of a group begins the next."""
        found: list[list[str]] = []
        for name in self.values:
            if found and (self.better.empty or not self.better.loc[found[-1][0], name]):
                found[-1].append(name)
            else:
                found.append([name])
        return found

    def learned(self, name: str, task: str = "") -> tuple[int, int]:
        """The number of seeds that learned the task, or all tasks, and of seeds."""
        own = [one[one["encoding"] == name] for key, one in self.seeds.items() if task in ("", key)]
        return sum(int(one["learned"].sum()) for one in own), sum(map(len, own))

    def score_of_learned(self, name: str) -> float | None:
        """The interquartile mean over the seeds that learned their task; None without one."""
        own = [
            one[(one["encoding"] == name) & one["learned"]]["score"].to_numpy() for one in self.seeds.values()
        ]
        own = [one for one in own if len(one)]
        return float(interquartile_mean(np.concatenate(own), _weights(own))) if own else None

    def score(self, name: str, task: str) -> float:
        own = self.seeds[task]
        return float(own[own["encoding"] == name]["score"].mean())


def task_board(tasks: Mapping[str, pd.DataFrame]) -> Board:
    """The board of tasks, from the scores of their seeds: the interquartile mean over tasks and seeds, each
    task with the same weight, and a bootstrap over the seeds of each. It has the encodings with all tasks.

    With fewer than `FEWEST` seeds there are neither intervals nor places.
    """
    first = next(iter(tasks.values()))["encoding"]
    names = [
        name
        for name in dict.fromkeys(first)
        if all((own["encoding"] == name).any() for own in tasks.values())
    ]
    scores = {name: {task: own[own["encoding"] == name]["score"].to_numpy() for task, own in tasks.items()}
              for name in names}  # fmt: skip

    def mean(name: str, left_out: str = "") -> float:
        kept = [own for task, own in scores[name].items() if task != left_out]
        return float(interquartile_mean(np.concatenate(kept), _weights(kept)))

    means = {name: mean(name) for name in names}
    names.sort(key=lambda name: (-means[name], name))
    if min(len(own) for name in names for own in scores[name].values()) < FEWEST:
        values, without = {name: Estimate(means[name]) for name in names}, {}
        for task in tasks if len(tasks) > 1 else ():
            order = pd.Series({name: mean(name, task) for name in names}).rank(ascending=False, method="min")
            without[task] = {name: (int(rank), int(rank)) for name, rank in order.items()}
        return Board(values, pd.DataFrame(), without, dict(tasks))

    def distributions(left_out: str = "") -> pd.DataFrame:
        kept = [task for task in tasks if task != left_out]
        return pd.DataFrame({name: bootstrap([scores[name][task] for task in kept]) for name in names})

    every = distributions()
    ends = {name: np.searchsorted(every[name].cumsum(), (1 - CERTAIN, CERTAIN)) / STEPS for name in names}
    values = {name: Estimate(means[name], *map(float, ends[name])) for name in names}
    without = {task: places_of(better_than(distributions(task))) for task in tasks} if len(tasks) > 1 else {}
    return Board(values, better_than(every), without, dict(tasks))


def loss_board(one: Measured) -> Board:
    """The board of a text study: the loss averaged over the lengths above the trained one. Pairs are compared
    over the same seeds and documents. An encoding that cannot be read at one of the lengths comes last.

    With fewer than `FEWEST` seeds of all encodings, the interval over seeds of each pair follows from the
    spread of those that have more. Without such encodings there are no places.
    """
    means, few = mean_losses(one), min(one.seeds.values()) < FEWEST
    values = {name: own.estimate() if own else None for name, own in means.items()}
    names = sorted(values, key=lambda name: (values[name].value if values[name] else np.inf, name))
    values = {name: values[name] for name in names}
    spread = seed_spread(one.further) if few and one.further else None
    first = mean_losses(one, [one.trained])
    rises = {name: own.value - first[name].estimate().value for name, own in values.items() if own}

    def difference(name: str, other: str) -> Estimate | None:
        if not (means[name] and means[other]):
            return None
        apart = spread and name != other
        margin = spread.margin((rises[name], rises[other]), min(one.seeds.values())) if apart else None
        return means[name].less(means[other], margin)

    behind = {name: difference(name, names[0]) for name in names}
    if few and not spread:
        return Board(values, pd.DataFrame(), behind=behind)
    better = pd.DataFrame(False, names, names)
    for name, other in combinations(names, 2):
        found = difference(other, name)
        better.loc[name, other] = (found.low or 0) > 0 if found else means[name] is not None
    return Board(values, better, behind=behind, spread=spread)


def mean_losses(one: Measured, lengths: Collection[int] = ()) -> dict[str, UnitLosses | None]:
    """The loss of each encoding averaged over lengths, by default those above the trained one; None if it
    cannot be read at one of them."""
    lengths = lengths or [length for length in one.study.lengths if length > one.trained]
    found = {}
    for name in one.encodings:
        own = one.losses(name)
        found[name] = mean_over_lengths([own[at] for at in lengths]) if own.keys() >= {*lengths} else None
    return found


def seed_spread(one: Measured, lengths: Collection[int] = ()) -> Spread | None:
    """The spread over seeds of the losses of `mean_losses`, of the encodings with at least `FEWEST`."""
    means = mean_losses(one, lengths).items()
    each = {name: own.by_seed() for name, own in means if own and len(own.amounts) >= FEWEST}
    spread = Spread(pd.DataFrame(each).dropna())
    return spread if each and spread.freedom > 0 else None


def _weights(groups: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.full(len(own), 1 / len(own)) for own in groups])


def better_than(distributions: pd.DataFrame) -> pd.DataFrame:
    """Whether the encoding of the row is surely better than that of the column."""
    chances = distributions.to_numpy()
    below = chances.cumsum(0) - chances
    return pd.DataFrame(chances.T @ below > CERTAIN, distributions.columns, distributions.columns)


def places_of(better: pd.DataFrame) -> dict[str, tuple[int, int]]:
    ends = zip(1 + better.sum(axis=0), len(better) - better.sum(axis=1), strict=True)
    return {name: (int(low), int(high)) for name, (low, high) in zip(better.columns, ends, strict=True)}


def _span(place: tuple[int, int]) -> str:
    low, high = place
    return str(low) if low == high else f"{low}–{high}"
