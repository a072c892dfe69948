"""95 % intervals of a number over documents, over examples and over seeds.

Each tells how the number would change with other units of the same kind (documents, examples, seeds), and
with nothing else. Tokens of one document are alike: it is the document that is the unit, never the token.

A loss per token or byte is a ratio of two sums over documents of very different sizes. Its interval is the
linearised one (Cochran, Sampling Techniques, 1977, section 6.3), each residual divided by 1 - leverage as a
jackknife has it (HC3: MacKinnon & White 1985), with the t quantile of as many degrees of freedom as there are
effective documents (Kish 1965) less one. A percentile bootstrap over few documents is too narrow, and so are
the same residuals without those corrections: docs/coverage.md has the numbers.

A rate has Wilson's interval (1927), which has a width where all examples are right. A difference of two rates
on the same examples is put together from Wilson's intervals of how often one side is better and how often
the other is (square and add with their correlation: Newcombe 1998; Zou & Donner 2008).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

LEVEL = 0.95

Interval = tuple[float | None, float | None]
"""Low and high end; None for both where no interval is known."""
UNKNOWN: Interval = (None, None)


def interval_of_ratio(amounts: np.ndarray, sizes: np.ndarray) -> Interval:
    """The interval of sum(amounts) / sum(sizes) over units, [N] each: nats of documents by their bytes.

    Of two models on the same documents, with the difference of their losses as amounts, it is the paired
    interval of the difference. Unknown of fewer than two units of any size, and where an amount is not
    finite.
    """
    amounts, sizes = np.asarray(amounts, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    if not np.isfinite(amounts).all():
        return UNKNOWN
    total = float(sizes.sum())
    if np.count_nonzero(sizes) < 2 or total <= 0:
        return UNKNOWN
    ratio = float(amounts.sum()) / total
    residuals = (amounts - ratio * sizes) / (1 - sizes / total)
    error = math.sqrt(float(residuals @ residuals)) / total
    effective = total**2 / float(sizes @ sizes)
    margin = _t(effective - 1) * error
    return ratio - margin, ratio + margin


def interval_of_rate(scores: np.ndarray) -> Interval:
    """Wilson's interval of the mean of scores between 0 and 1, [N]; NaN is left out.

    Scores between the two (ties, shares of tokens) vary less than right and wrong do, so that it is wider
    than need be. Unknown of no score.
    """
    scores = np.asarray(scores, dtype=np.float64)
    scores = scores[~np.isnan(scores)]
    return _wilson(float(scores.mean()), len(scores)) if len(scores) else UNKNOWN


def interval_of_rate_difference(differences: np.ndarray) -> Interval:
    """The interval of the mean of differences between two models' scores on the same examples, [N], each
    between -1 and 1. It has a width where all of them are zero. Unknown of none."""
    differences = np.asarray(differences, dtype=np.float64)
    count = len(differences)
    if not count:
        return UNKNOWN
    better, worse = float(np.maximum(differences, 0).mean()), float(np.maximum(-differences, 0).mean())
    better_low, better_high = _wilson(better, count)
    worse_low, worse_high = _wilson(worse, count)
    apart = (1 - better) * (1 - worse)
    correlation = -math.sqrt(better * worse / apart) if apart > 0 else -1.0

    def both(one: float, other: float) -> float:
        return math.sqrt(max(one * one + other * other - 2 * correlation * one * other, 0.0))

    value = better - worse
    low = value - both(better - better_low, worse_high - worse)
    high = value + both(better_high - better, worse - worse_low)
    return max(low, -1.0), min(high, 1.0)


def interval_of_mean(values: Iterable[float]) -> Interval:
    """Student's t interval of a mean over seeds. Unknown of fewer than two."""
    known = np.asarray(list(values), dtype=np.float64)
    if len(known) < 2 or not np.isfinite(known).all():
        return UNKNOWN
    margin = _t(len(known) - 1) * float(known.std(ddof=1)) / math.sqrt(len(known))
    return float(known.mean()) - margin, float(known.mean()) + margin


def combined(value: float, *intervals: Interval) -> Interval:
    """One interval around a value for several sources of change, each of which has an interval of its own.

    The distances of the ends from the value are squared and added (Howe 1974; Zou & Donner 2008). Of seeds
    and documents it is wider than need be, since what a seed does to single documents is in both; the wider
    of the two alone would leave out one source. Unknown where one of them is.
    """
    if any(None in one for one in intervals) or not intervals:
        return UNKNOWN
    below = math.hypot(*(max(value - low, 0.0) for low, _ in intervals))
    above = math.hypot(*(max(high - value, 0.0) for _, high in intervals))
    return value - below, value + above


def _wilson(rate: float, count: int) -> tuple[float, float]:
    from scipy.special import ndtri

    z = float(ndtri((1 + LEVEL) / 2))
    middle = rate + z * z / (2 * count)
    margin = z * math.sqrt(max(rate * (1 - rate), 0.0) / count + (z / (2 * count)) ** 2)
    low, high = (middle - margin) / (1 + z * z / count), (middle + margin) / (1 + z * z / count)
    # Rounding must not push an end past the rate, nor out of what a rate can be.
    return max(0.0, min(low, rate)), min(1.0, max(high, rate))


def _t(freedom: float) -> float:
    """The quantile of Student's t. One document that outweighs all others leaves one degree of freedom."""
    # scipy.special has it without what makes the import of scipy.stats slow.
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 1.0), (1 + LEVEL) / 2))
