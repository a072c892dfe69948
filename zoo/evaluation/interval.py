"""How far a mean may be trusted: percentile bootstrap over documents or examples.

Efron & Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. The units are drawn with replacement,
as many as there are, and the mean is taken anew; 95 % of those means lie within the interval.

Its limits. It tells how the number would change with other documents of the same kind; not with other seeds,
nor another corpus. Tokens of one document are alike, and therefore never drawn by themselves. Of few
documents (below about 20) it is too narrow: with ten, an interval called 95 % holds the truth about 90 % of
the time. Of a rate that is the same for every unit, all right or all wrong, it sees no spread at all: 1024 of
1024 right say that at least 99.7 % are (the rule of three), not that all are. Two intervals of the same
documents may overlap where the difference is sure all the same: it is the difference that would have to be
resampled.
"""

from __future__ import annotations

import numpy as np

from zoo.data.draws import Draws, below

RESAMPLES = 1000
LEVEL = 0.95

Interval = tuple[float | None, float | None]


def resampled_sums(columns: np.ndarray) -> np.ndarray | None:
    """Sums over units that are drawn with replacement, [RESAMPLES, C], from what each unit adds, [N, C].

    A ratio of two columns of the result is the resampled ratio: losses by tokens, losses by bytes. The draws
    depend on N alone, so that all lengths and all models are judged on the same ones. None of a single unit.
    """
    columns = np.asarray(columns, dtype=np.float64)
    if len(columns) < 2:
        return None
    draws = Draws("bootstrap", len(columns))
    sums = np.empty((RESAMPLES, columns.shape[1]))
    for row in range(RESAMPLES):
        times = np.bincount(below(draws.words(len(columns), row=row), len(columns)), minlength=len(columns))
        # Units whose loss is infinite make 0 * inf where they are not drawn.
        drawn = times > 0
        sums[row] = times[drawn] @ columns[drawn]
    return sums


def interval(resampled: np.ndarray) -> Interval:
    """The 95 % percentile interval of a resampled quantity; None for an end that is not finite."""
    tail = (1 - LEVEL) / 2
    with np.errstate(invalid="ignore"):
        ends = np.quantile(resampled, [tail, 1 - tail])
    return tuple(float(end) if np.isfinite(end) else None for end in ends)


def interval_of_mean(values: np.ndarray) -> Interval:
    """The 95 % interval of the mean of one number for each example, [N]; NaN is left out.

    (None, None) of fewer than two numbers.
    """
    values = np.asarray(values, dtype=np.float64)
    sums = resampled_sums(values[~np.isnan(values)][:, None])
    return (None, None) if sums is None else interval(sums[:, 0] / np.count_nonzero(~np.isnan(values)))
