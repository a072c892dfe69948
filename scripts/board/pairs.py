"""Losses of documents, their paired differences, and intervals over documents and seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from zoo.comparison.formatting import signed
from zoo.evaluation.interval import combined, interval_of_mean, interval_of_rate_difference, interval_of_ratio
from zoo.evaluation.measurement import Units


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, or without one."""

    value: float
    low: float | None = None
    high: float | None = None

    def text(self, form: Callable[[float], str]) -> str:
        """`1.63 (1.62–1.64)`, or `+0.01 (-0.01 to +0.03)` if `form` writes signs."""
        if self.low is None or self.high is None:
            return form(self.value)
        to = " to " if form is signed else "–"
        return f"{form(self.value)} ({form(self.low)}{to}{form(self.high)})"

    def plus_minus(self) -> str:
        """`+0.05 ±0.01`, of a symmetric interval."""
        margin = f" ±{self.high - self.value:.3f}" if self.high is not None else ""
        return f"{self.value:+.3f}{margin}"


RISING = 0.2
"""The standard deviation over seeds of an encoding whose loss rises with the length, as a share of the rise.

Chosen on a former setting of text, in which 24 encodings had three seeds (scripts/results/text at commit
450b08b9f2). From one seed and the spread of none, t5, alibi and fox, 95 % intervals with this share missed
the difference in the other two seeds in 0.4 % of the pairs without an encoding that rises by 5 % or more, and
in 4 % of those with one; without it, in 5 % and 71 %."""


@dataclass(frozen=True)
class Spread:
    """How much a seed changes the loss of one encoding, apart from what it does to all of them.

    Attributes:
        losses: of the encodings with several seeds; rows are seeds, columns encodings.
    """

    losses: pd.DataFrame

    @property
    def freedom(self) -> int:
        """The degrees of freedom of `sd`."""
        return (self.losses.shape[0] - 1) * (self.losses.shape[1] - 1)

    @property
    def sd(self) -> float:
        """The standard deviation of the residuals, without the means of seeds and of encodings."""
        table = self.losses.to_numpy()
        residuals = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
        return math.sqrt((residuals**2).sum() / self.freedom)

    def margin(self, rises: Sequence[float] = (0.0, 0.0), seeds: int = 1) -> float:
        """Half of the 95 % interval over seeds of the paired difference of two encodings.

        Args:
            rises: how much the loss of each of the two rises beyond the trained length.
        """
        sd = math.hypot(*(max(self.sd, RISING * rise) for rise in rises))
        return float(stdtrit(self.freedom, 0.975)) * sd / math.sqrt(seeds)


def estimate(
    amounts: Sequence[np.ndarray], sizes: np.ndarray | None, margin: float | None = None
) -> Estimate:
    """The mean over seeds of the amounts of documents by their sizes, or of differences of examples; [S, N].

    The interval is over documents or examples, and over seeds: with this margin if it is given, else by the
    values where there are several."""
    table = np.array(amounts)
    if sizes is None:
        values, over_units = table.mean(1), interval_of_rate_difference(table.mean(0))
    else:
        values, over_units = table.sum(1) / sizes.sum(), interval_of_ratio(table.mean(0), sizes)
    value = float(values.mean())
    if margin is not None:
        over_seeds = [(value - margin, value + margin)]
    else:
        over_seeds = [interval_of_mean(values)] if len(values) > 1 else []
    return Estimate(value, *combined(value, over_units, *over_seeds))


def mean_over_seeds(values: Sequence[float], most: float = 1.0) -> Estimate:
    """The mean with its 95 % interval over seeds, which ends at 0 and at the most that a value can be."""
    low, high = interval_of_mean(values)
    mean = float(sum(values) / len(values))
    return Estimate(mean) if low is None or high is None else Estimate(mean, max(low, 0.0), min(high, most))


@dataclass(frozen=True)
class UnitLosses:
    """The summed losses of documents for each seed, [N] each, and their bytes or tokens, [N]."""

    amounts: dict[int, np.ndarray]
    sizes: np.ndarray

    def by_seed(self) -> dict[int, float]:
        return {seed: float(own.sum() / self.sizes.sum()) for seed, own in self.amounts.items()}

    def estimate(self) -> Estimate:
        return estimate([*self.amounts.values()], self.sizes)

    def less(self, other: UnitLosses, margin: float | None = None) -> Estimate:
        """The paired difference over the same documents and seeds; for `margin` see `estimate`."""
        seeds = [seed for seed in self.amounts if seed in other.amounts]
        return estimate([self.amounts[seed] - other.amounts[seed] for seed in seeds], self.sizes, margin)


def losses(rows: pd.DataFrame, units: Mapping[int, Units]) -> dict[int, UnitLosses]:
    """The losses at each length, of the rows of one encoding, protocol and measure (`bits_per_byte` or
    `loss_nats`); without the lengths at which a seed has no finite value."""
    found = {}
    for length, own in rows.groupby("length"):
        if own["value"].notna().all():
            columns = {row.seed: units[row.Index].columns() for row in own.itertuples()}
            in_bytes = own["measure"].iloc[0] == "bits_per_byte"
            scale = 1 / math.log(2) if in_bytes else 1.0
            amounts = {seed: scale * np.array(one["nats"], float) for seed, one in columns.items()}
            sizes = next(iter(columns.values()))["bytes" if in_bytes else "tokens"]
            found[int(length)] = UnitLosses(amounts, np.array(sizes, float))
    return found


def mean_over_lengths(every: Sequence[UnitLosses]) -> UnitLosses:
    """The losses averaged over lengths with the same targets."""
    seeds = every[0].amounts
    return UnitLosses(
        {seed: np.mean([one.amounts[seed] for one in every], axis=0) for seed in seeds}, every[0].sizes
    )
