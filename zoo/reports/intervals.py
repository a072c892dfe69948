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
COLUMNS = {RATE: ("scores", ""), "bits_per_byte": ("nats", "bytes"), "loss_nats": ("nats", "tokens")}
"""Of `zoo.evaluation.measurement.Units`: of which measures what each unit gave is known, and its size."""
ONE_UNIT = "one document was scored"


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
    """What the seeds of a curve gave at one length.

    `values` has the measure of each seed, `stored` the interval of a single one as it was stored. Where it is
    known what each document or example gave, `amounts` [S, N] has it, with the `sizes` [N] of documents;
    samples with the same `units` can be paired, unit by unit: documents, blocks of text or examples.
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
        if None in (low, high):
            return UNKNOWN
        # Nor is there a loss below zero, or a rate that is none.
        return max(low, 0.0), min(high, 1.0) if self.measure == RATE else high


def sample(rows: dict[int, Row], measure: str) -> Sample:
    """The sample of the rows of some seeds at one length, all of them with a finite value."""
    values = {seed: row[measure] for seed, row in rows.items()}
    stored = UNKNOWN
    if len(rows) == 1:
        (row,) = rows.values()
        stored = row.get(f"{measure}_low"), row.get(f"{measure}_high")
    amount, size = COLUMNS.get(measure, ("", ""))
    unit = "example" if measure == RATE else "document"
    kinds, amounts = set(), []
    for row in rows.values():
        units = row.get("units") or {}
        # What a seed does not say is not known of their mean.
        if None in units.get(amount, [None]) or (size and size not in units):
            return Sample(measure, values, stored, unit=unit)
        unit = "text block" if "blocks" in units else unit
        amounts.append(units[amount])
        sizes = tuple(units[size]) if size else ()
        indices = tuple(units.get("documents") or units.get("blocks", ()))
        kinds.add((row["targets"], len(units[amount]), unit, indices, sizes))
    if len(kinds) > 1:
        return Sample(measure, values, stored, unit=unit)
    factor = 1 / math.log(2) if measure == "bits_per_byte" else 1.0
    sizes = np.array(units[size], dtype=np.float64) if size else None
    amounts = factor * np.array(amounts, dtype=np.float64)
    return Sample(measure, values, stored, amounts, sizes, kinds.pop(), unit)


def basis_of(samples: Sequence[Sample]) -> Basis:
    """What intervals can be over, for all curves alike: over seeds only where each has two or more."""
    seeds = bool(samples) and all(len(one.values) > 1 for one in samples)
    units = all(one.amounts is not None and None not in one.over_units() for one in samples)
    return Basis(seeds=seeds, units=units or not seeds)


def difference(one: Sample, other: Sample, basis: Basis) -> Difference:
    """One value less the other, paired: over the same documents or examples, and each seed of one with the
    same seed of the other. Where the seeds are not the same ones, the spreads of both are added."""
    value = one.mean - other.mean
    parts = []
    if basis.units:
        unit = one.unit
        if one.amounts is None or other.amounts is None:
            return Difference(value, why=f"what each {unit} gave is not stored")
        if one.units != other.units:
            why = f"other {unit}s were scored"
            if "text block" in (unit, other.unit):
                why = "they have other text blocks: evaluate both again at the same lengths"
            return Difference(value, why=why)
        apart = one.amounts.mean(0) - other.amounts.mean(0)
        own = interval_of_rate_difference(apart) if one.sizes is None else interval_of_ratio(apart, one.sizes)
        if None in own:
            return Difference(value, why=ONE_UNIT)
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
