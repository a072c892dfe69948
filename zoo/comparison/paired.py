"""Intervals of means over seeds, paired differences of two means, and ranks.

Two sources of variation: other documents (or examples), known from the scores of each one, averaged over the
seeds; and other seeds, known from their spread. Where every curve of a protocol has `FEWEST_SEEDS`, an
interval is over both (`zoo.evaluation.interval.combined`). Otherwise it is over documents alone for all
curves, since intervals of two kinds do not compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zoo.comparison.formatting import number, signed
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
"""Seeds for an interval over them: that of two seeds reaches 9 standard deviations to each side."""
SCORES = {RATE: ("scores", ""), "bits_per_byte": ("nats", "bytes"), "loss_nats": ("nats", "tokens")}
"""For each measure with scores of each unit: their columns in `Units`, and the sizes of the units."""


@dataclass(frozen=True)
class Estimate:
    """A mean or a paired difference with its 95 % interval, or the reason why it has none."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    why: str = ""

    @property
    def sign(self) -> int | None:
        """1 or -1 where the interval excludes zero, 0 where it includes it, None without an interval."""
        return None if math.isnan(self.low) else int(self.low > 0) - int(self.high < 0)

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, -self.high, -self.low, self.why)

    def text(self, form: Callable[[float], str] = number) -> str:
        """`1.63 (1.62–1.64)`, or `+0.01 (-0.01 to +0.03)` if `form` writes signs."""
        ends = (" to " if form is signed else "–").join(map(form, (self.low, self.high)))
        return form(self.value) + ("" if math.isnan(self.low) else f" ({ends})")

    def plus_minus(self) -> str:
        """`+0.050 ±0.010`, of a symmetric interval; empty without a value."""
        margin = "" if math.isnan(self.low) else f" ±{self.high - self.value:.3f}"
        return "" if math.isnan(self.value) else f"{self.value:+.3f}{margin}"


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

    def estimate(self, basis: Basis) -> Estimate:
        """The mean; without ends where no interval is known."""
        parts = [self.over_units()] * basis.units + [interval_of_mean(self.values.values())] * basis.seeds
        return _estimate(self.mean, parts, 0.0, 1.0 if self.measure == RATE else math.inf)


@dataclass(frozen=True)
class Basis:
    """The sources of variation that all intervals of a protocol are over."""

    seeds: bool
    units: bool

    def named(self, unit: str) -> str:
        """`95 % interval over seeds and documents`."""
        over = [name for name, there in (("seeds", self.seeds), (f"{unit}s", self.units)) if there]
        return f"95 % interval over {' and '.join(over)}"


def _estimate(value: float, parts: Sequence[Interval], least: float, most: float) -> Estimate:
    """A value with its interval over several sources of change, within the range of the measure."""
    low, high = combined(value, *parts)
    return Estimate(value) if low is None else Estimate(value, max(low, least), min(high, most))


def mean_over_seeds(values: Sequence[float], most: float = 1.0, least: float = 0.0) -> Estimate:
    """The mean of values between `least` and `most`, with its interval over seeds."""
    return _estimate(float(np.mean(values)), [interval_of_mean(values)], least, most)


def mean_over_lengths(samples: Sequence[Sample]) -> Sample:
    """The sample of the mean over lengths; without amounts unless all have the same units."""
    first = samples[0]
    seeds = [seed for seed in first.values if all(seed in one.values for one in samples)]
    values = {seed: float(np.mean([one.values[seed] for one in samples])) for seed in seeds}
    if any(one.amounts is None or (one.units, [*one.values]) != (first.units, seeds) for one in samples):
        return replace(first, values=values, stored=UNKNOWN, amounts=None)
    return replace(first, values=values, amounts=np.mean([one.amounts for one in samples], axis=0))


def make_sample(measure: str, rows: Sequence[Any], units: Mapping[int, Units]) -> Sample:
    """The sample of the rows of some seeds, all with a finite value; the index of a row is that of its
    units."""
    low, high = rows[0].low, rows[0].high
    stored = UNKNOWN if len(rows) > 1 or math.isnan(low) or math.isnan(high) else (low, high)
    found = [units[row.Index].columns() if row.Index in units else {} for row in rows]
    unit = "example" if measure == RATE else "text block" if "blocks" in found[0] else "document"
    sample = Sample(measure, {row.seed: row.value for row in rows}, stored, unit=unit)
    amount, size = SCORES.get(measure, ("", ""))
    if any(None in own.get(amount, [None]) or (size and size not in own) for own in found):
        return sample
    kinds = {
        (len(own[amount]), *(tuple(own.get(one, ())) for one in ("documents", "blocks", size)))
        for own in found
    }
    if len(kinds) > 1:
        return sample
    amounts = np.array([own[amount] for own in found], dtype=np.float64)
    amounts = amounts / math.log(2) if measure == "bits_per_byte" else amounts
    sizes = np.array(found[0][size], dtype=np.float64) if size else None
    return replace(sample, amounts=amounts, sizes=sizes, units=(unit, *kinds.pop()))


def basis_of(samples: Sequence[Sample]) -> Basis:
    """The basis of a protocol's intervals, the same for all curves: seeds only where each has enough."""
    seeds = bool(samples) and all(len(one.values) >= FEWEST_SEEDS for one in samples)
    units = all(one.amounts is not None and None not in one.over_units() for one in samples)
    return Basis(seeds=seeds, units=units or not seeds)


def difference(one: Sample, other: Sample, basis: Basis) -> Estimate:
    """One mean less the other, paired over the same documents or examples and over the same seeds. Where the
    seeds are not the same, the spreads of both are added."""
    value, parts = one.mean - other.mean, []
    if basis.units:
        if one.amounts is None or other.amounts is None:
            return Estimate(value, why=f"the scores of each {one.unit} are not stored")
        if one.units != other.units:
            why = f"other {one.unit}s were scored"
            if "text block" in (one.unit, other.unit):
                why = "they have other text blocks: evaluate both again at the same lengths"
            return Estimate(value, why=why)
        apart = one.amounts.mean(0) - other.amounts.mean(0)
        own = interval_of_rate_difference(apart) if one.sizes is None else interval_of_ratio(apart, one.sizes)
        if None in own:
            return Estimate(value, why="one document was scored")
        parts.append(own)
    if basis.seeds and one.values.keys() == other.values.keys():
        parts.append(interval_of_mean(one.values[seed] - other.values[seed] for seed in one.values))
    elif basis.seeds:
        low, high = interval_of_mean(one.values.values())
        parts.append((value + low - one.mean, value + high - one.mean))
        low, high = interval_of_mean(other.values.values())
        parts.append((value + other.mean - high, value + other.mean - low))
    most = 1.0 if one.measure == RATE else math.inf
    return _estimate(value, parts, -most, most)


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
