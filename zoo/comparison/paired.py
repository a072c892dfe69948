"""Intervals of means over seeds, paired differences of two means, and ranks.

Two sources of variation: other documents (or examples), known from the scores of each one, averaged over the
seeds; and other seeds, known from their spread. Where every curve of a protocol has `FEWEST_SEEDS`, an
interval is over both (`zoo.evaluation.interval.combined`). Otherwise it is over documents alone for all
curves, since intervals of two kinds do not compare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.evaluation.interval import (
    UNKNOWN,
    Interval,
    combined,
    interval_of_mean,
    interval_of_rate,
    interval_of_rate_difference,
    interval_of_ratio,
)
from zoo.evaluation.measurement import Units

RATE = "accuracy"
FEWEST_SEEDS = 3
"""Of two seeds the interval reaches 9 standard deviations to each side."""
SCORES = {RATE: ("scores", ""), "bits_per_byte": ("nats", "bytes"), "loss_nats": ("nats", "tokens")}
"""For each measure with scores of each unit: their columns in `Units`, and the sizes of the units."""


@dataclass(frozen=True)
class Sample:
    """The seeds of a curve at one length.

    Attributes:
        values: the measure of each seed.
        stored: the stored interval of a single seed.
        amounts: scores of each document, block or example, [S, N]; None where they are not stored.
        sizes: of documents and blocks, [N].
        units: samples with equal `units` can be paired.
        unit: document, text block or example.
    """

    measure: str
    values: dict[int, float]
    stored: Interval = UNKNOWN
    amounts: np.ndarray | None = None
    sizes: np.ndarray | None = None
    units: tuple = ()
    unit: str = "document"

    @property
    def mean(self) -> float:
        return sum(self.values.values()) / len(self.values)

    def over_units(self) -> Interval:
        """The interval of the mean over seeds, over documents or examples."""
        if self.amounts is None:
            return self.stored
        if self.sizes is None:
            return interval_of_rate(self.amounts.mean(0))
        low, high = interval_of_ratio(self.amounts.mean(0), self.sizes)
        return (None if low is None else max(low, 0.0)), high

    def interval(self, basis: Basis) -> Interval:
        parts = [self.over_units()] * basis.units + [interval_of_mean(self.values.values())] * basis.seeds
        low, high = combined(self.mean, *parts)
        if low is None or high is None:
            return UNKNOWN
        return max(low, 0.0), min(high, 1.0) if self.measure == RATE else high


@dataclass(frozen=True)
class Basis:
    """What all intervals of a protocol are over."""

    seeds: bool
    units: bool

    def named(self, unit: str) -> str:
        """`95 % interval over seeds and documents`."""
        over = [name for name, there in (("seeds", self.seeds), (f"{unit}s", self.units)) if there]
        return f"95 % interval over {' and '.join(over)}"


@dataclass(frozen=True)
class Difference:
    """A paired difference of two means with its 95 % interval, or the reason why there is none."""

    value: float
    low: float | None = None
    high: float | None = None
    why: str = ""

    @property
    def sign(self) -> int | None:
        """1 or -1 where the interval excludes zero, 0 where it includes it, None without an interval."""
        if self.low is None or self.high is None:
            return None
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def __neg__(self) -> Difference:
        if self.low is None or self.high is None:
            return Difference(-self.value, why=self.why)
        return Difference(-self.value, -self.high, -self.low)


def make_sample(measure: str, rows: Sequence[Any], units: Mapping[int, Units]) -> Sample:
    """The sample of the rows of some seeds, all with a finite value; `row` is the place of their units."""
    values = {row.seed: row.value for row in rows}
    low, high = rows[0].low, rows[0].high
    stored = UNKNOWN if len(rows) > 1 or math.isnan(low) or math.isnan(high) else (low, high)
    amount, size = SCORES.get(measure, ("", ""))
    unit = "example" if measure == RATE else "document"
    kinds, amounts, sizes = set(), [], None
    for place in (row.row for row in rows):
        columns = units[place].columns() if place in units else {}
        if None in columns.get(amount, [None]) or (size and size not in columns):
            return Sample(measure, values, stored, unit=unit)
        unit = "text block" if "blocks" in columns else unit
        amounts.append(columns[amount])
        sizes = columns.get(size)
        indices = tuple(columns.get("documents") or columns.get("blocks", ()))
        kinds.add((len(columns[amount]), unit, indices, tuple(sizes or ())))
    if len(kinds) > 1:
        return Sample(measure, values, stored, unit=unit)
    factor = 1 / math.log(2) if measure == "bits_per_byte" else 1.0
    weights = np.array(sizes, dtype=np.float64) if size else None
    return Sample(
        measure, values, stored, factor * np.array(amounts, dtype=np.float64), weights, kinds.pop(), unit
    )


def basis_of(samples: Sequence[Sample]) -> Basis:
    """The basis of a protocol's intervals, the same for all curves: seeds only where each has enough."""
    seeds = bool(samples) and all(len(one.values) >= FEWEST_SEEDS for one in samples)
    units = all(one.amounts is not None and None not in one.over_units() for one in samples)
    return Basis(seeds=seeds, units=units or not seeds)


def difference(one: Sample, other: Sample, basis: Basis) -> Difference:
    """One mean less the other, paired over the same documents or examples and over the same seeds. Where the
    seeds are not the same, the spreads of both are added."""
    value = one.mean - other.mean
    parts = []
    if basis.units:
        if one.amounts is None or other.amounts is None:
            return Difference(value, why=f"the scores of each {one.unit} are not stored")
        if one.units != other.units:
            why = f"other {one.unit}s were scored"
            if "text block" in (one.unit, other.unit):
                why = "they have other text blocks: evaluate both again at the same lengths"
            return Difference(value, why=why)
        apart = one.amounts.mean(0) - other.amounts.mean(0)
        own = interval_of_rate_difference(apart) if one.sizes is None else interval_of_ratio(apart, one.sizes)
        if None in own:
            return Difference(value, why="one document was scored")
        parts.append(own)
    if basis.seeds and one.values.keys() == other.values.keys():
        parts.append(interval_of_mean(one.values[seed] - other.values[seed] for seed in one.values))
    elif basis.seeds:
        low, high = interval_of_mean(one.values.values())
        parts.append((value + low - one.mean, value + high - one.mean))
        low, high = interval_of_mean(other.values.values())
        parts.append((value + other.mean - high, value + other.mean - low))
    low, high = combined(value, *parts)
    if one.measure == RATE and low is not None:
        low, high = max(low, -1.0), min(high, 1.0)
    return Difference(value, low, high)


def ranks(ordered: Sequence[str], worse: Set[tuple[str, str]]) -> dict[str, int]:
    """1 + the number of curves that are better, by label.

    A curve is better than another where `worse` has the two and every pair that encloses them in the order of
    means (coherence: Gabriel 1969). So a worse mean never has a better rank, and all that are tied with the
    best have rank 1.

    Args:
        ordered: labels, the best mean first.
        worse: pairs of a worse and a better curve, where the interval of their difference excludes zero.

    >>> ranks("abc", {("b", "a"), ("c", "b")})
    {'a': 1, 'b': 1, 'c': 1}
    >>> ranks("abc", {("c", "a"), ("c", "b")})
    {'a': 1, 'b': 1, 'c': 3}
    """
    last, better = len(ordered) - 1, set()
    for one in range(last):
        for other in range(last, one, -1):
            enclosed = (one == 0 or (one - 1, other) in better) and (
                other == last or (one, other + 1) in better
            )
            if enclosed and (ordered[other], ordered[one]) in worse:
                better.add((one, other))
    return {
        label: 1 + sum((one, index) in better for one in range(index)) for index, label in enumerate(ordered)
    }
