"""How far a value, and the difference of two, may be trusted: intervals over documents and over seeds.

Two sources of change are told apart. Another text (or other examples): known from what each document gave,
averaged over the seeds. Another seed: known from the spread of the seeds. Where every curve has two seeds or
more, an interval is over both (`zoo.evaluation.interval.combined` says how, and why); where some have one, it
is over documents alone for all of them, since intervals of two kinds beside each other compare nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
from zoo.reports.compared_run import Row
from zoo.reports.report import Difference

RATE = "accuracy"
Units = dict[str, list]
"""The columns of `zoo.evaluation.measurement.Units`."""
ONE_UNIT = "one document was scored"
NO_UNITS = "what each {unit} gave is not stored"
OTHER_UNITS = "other {unit}s were scored"


@dataclass(frozen=True)
class Basis:
    """What the intervals of a comparison are over, the same for all of its curves."""

    seeds: bool
    units: bool

    def named(self, unit: str) -> str:
        """`95 % interval over seeds and documents`."""
        over = [name for name, there in (("seeds", self.seeds), (f"{unit}s", self.units)) if there]
        return f"95 % interval over {' and '.join(over)}"


@dataclass(frozen=True)
class Sample:
    """What the seeds of a curve gave at one length: a value of each, and, where known, what each document or
    example gave: `amounts` [S, N] and, of a loss, `sizes` [N]. `stored` is the interval of a single row."""

    measure: str
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    targets: tuple[str, ...]
    stored: Interval = UNKNOWN
    amounts: np.ndarray | None = None
    sizes: np.ndarray | None = None
    which: tuple[int, ...] = ()

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def unit(self) -> str:
        return unit_of(self.measure)

    def over_units(self) -> Interval:
        """The interval of the mean over seeds, over documents or examples."""
        if self.amounts is None:
            return self.stored
        of_units = self.amounts.mean(0)
        if self.sizes is None:
            return interval_of_rate(of_units)
        low, high = interval_of_ratio(of_units, self.sizes)
        return (None if low is None else max(low, 0.0)), high

    def interval(self, basis: Basis) -> Interval:
        parts = [self.over_units()] * basis.units + [interval_of_mean(self.values)] * basis.seeds
        low, high = combined(self.mean, *parts)
        if None in (low, high):
            return UNKNOWN
        # Nor is there a loss below zero, or a rate that is none.
        return max(low, 0.0), min(high, 1.0) if self.measure == RATE else high


def unit_of(measure: str) -> str:
    return "example" if measure == RATE else "document"


def sample(rows: Sequence[tuple[int, Row]], measure: str) -> Sample | None:
    """The sample of some seeds' rows at one length; None of no rows, or where a value is not finite."""
    values = tuple(row.get(measure) for _, row in rows)
    if not rows or any(value is None or not math.isfinite(value) for value in values):
        return None
    stored = UNKNOWN
    if len(rows) == 1:
        stored = rows[0][1].get(f"{measure}_low"), rows[0][1].get(f"{measure}_high")
    amounts, sizes, which = _of_units([row.get("units") for _, row in rows], measure)
    targets = tuple(dict.fromkeys(str(row.get("targets")) for _, row in rows))
    return Sample(
        measure, tuple(seed for seed, _ in rows), values, targets, stored, amounts, sizes, which
    )  # fmt: skip


def _of_units(
    units: Sequence[Units | None], measure: str
) -> tuple[np.ndarray | None, np.ndarray | None, tuple[int, ...]]:
    """What each unit gave, of all seeds; nothing where one of them does not say, or has other units."""
    unknown = None, None, ()
    names = {RATE: ("scores", "scores"), "bits_per_byte": ("nats", "bytes"), "loss_nats": ("nats", "tokens")}
    if measure not in names:
        return unknown
    amount, size = names[measure]
    if any(one is None or amount not in one or size not in one or None in one[amount] for one in units):
        return unknown
    rate = measure == RATE
    which = {tuple(range(len(one[amount])) if rate else one["documents"]) for one in units}
    sizes = {() if rate else tuple(one[size]) for one in units}
    if len(which) > 1 or len(sizes) > 1:
        return unknown
    amounts = np.array([one[amount] for one in units], dtype=np.float64)
    factor = 1 / math.log(2) if measure == "bits_per_byte" else 1.0
    return factor * amounts, None if rate else np.array(sizes.pop(), dtype=np.float64), which.pop()


def basis_of(samples: Sequence[Sample]) -> Basis:
    """What intervals can be over, for all curves alike: over seeds only where each has two or more."""
    seeds = bool(samples) and all(len(one.values) > 1 for one in samples)
    if not seeds:
        return Basis(seeds=False, units=True)
    return Basis(
        seeds=True, units=all(one.amounts is not None and None not in one.over_units() for one in samples)
    )


def difference(one: Sample, other: Sample, basis: Basis) -> Difference:
    """One value less the other, paired: over the same documents or examples, and each seed of one with the
    same seed of the other. Where the seeds are not the same ones, the spreads of both are added."""
    value = one.mean - other.mean
    parts = []
    if basis.units:
        why = _no_pairs(one, other)
        if why:
            return Difference(value, why=why)
        apart = one.amounts.mean(0) - other.amounts.mean(0)
        own = interval_of_rate_difference(apart) if one.sizes is None else interval_of_ratio(apart, one.sizes)
        if None in own:
            return Difference(value, why=ONE_UNIT)
        parts.append(own)
    if basis.seeds:
        parts += _over_seeds(one, other, value)
    low, high = combined(value, *parts)
    if one.measure == RATE and low is not None:
        low, high = max(low, -1.0), min(high, 1.0)
    return Difference(value, low, high)


def _no_pairs(one: Sample, other: Sample) -> str:
    """Why two samples cannot be paired unit by unit; empty where they can."""
    if one.amounts is None or other.amounts is None:
        return NO_UNITS.format(unit=one.unit)
    same = one.which == other.which and one.targets == other.targets
    if not same or (one.sizes is not None and not np.array_equal(one.sizes, other.sizes)):
        return OTHER_UNITS.format(unit=one.unit)
    return ""


def _over_seeds(one: Sample, other: Sample, value: float) -> list[Interval]:
    if set(one.seeds) == set(other.seeds) and len(set(one.seeds)) == len(one.seeds) == len(other.seeds):
        own, theirs = (
            dict(zip(one.seeds, one.values, strict=True)),
            dict(zip(other.seeds, other.values, strict=True)),
        )
        return [interval_of_mean(own[seed] - theirs[seed] for seed in own)]
    (low, high), (their_low, their_high) = interval_of_mean(one.values), interval_of_mean(other.values)
    return [
        (value + low - one.mean, value + high - one.mean),
        (value + other.mean - their_high, value + other.mean - their_low),
    ]
