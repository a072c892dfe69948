"""Bootstrap intervals, against a slow bootstrap and against what they promise."""

import random

import numpy as np
import pytest

from zoo.evaluation.interval import interval, interval_of_mean, resampled_sums


def slow_interval(pairs, times=4000):
    """Of a ratio of sums, unit by unit, with other random numbers."""
    chance = random.Random(1)
    ratios = []
    for _ in range(times):
        drawn = [chance.choice(pairs) for _ in pairs]
        ratios.append(sum(a for a, _ in drawn) / sum(b for _, b in drawn))
    ratios.sort()
    return ratios[int(0.025 * times)], ratios[int(0.975 * times)]


def test_a_ratio_of_sums_against_a_slow_bootstrap():
    rng = np.random.default_rng(0)
    tokens = rng.integers(5, 400, 40)
    losses = tokens * rng.normal(3, 0.5, 40)
    sums = resampled_sums(np.stack((losses, tokens), 1))
    low, high = interval(sums[:, 0] / sums[:, 1])
    slow_low, slow_high = slow_interval(list(zip(losses.tolist(), tokens.tolist(), strict=True)))
    width = slow_high - slow_low
    assert low == pytest.approx(slow_low, abs=0.1 * width)
    assert high == pytest.approx(slow_high, abs=0.1 * width)
    # The mean of the units' own ratios is another quantity: long documents weigh more.
    assert low < losses.sum() / tokens.sum() < high


def test_the_truth_lies_within_as_often_as_promised():
    rng = np.random.default_rng(0)
    held = [low < 5 < high for low, high in (interval_of_mean(rng.normal(5, 2, 60)) for _ in range(100))]
    assert 0.88 <= np.mean(held) <= 0.99


def test_more_examples_narrow_it():
    rng = np.random.default_rng(0)
    widths = [np.subtract(*reversed(interval_of_mean(rng.normal(0, 1, n)))) for n in (50, 200, 800)]
    assert widths[0] > 1.5 * widths[1] > 2.25 * widths[2] > 0


def test_the_same_numbers_have_the_same_interval():
    values = np.random.default_rng(0).random(50)
    assert interval_of_mean(values) == interval_of_mean(values.copy())
    # All lengths are judged on the same draws: a constant that is added moves both ends by itself.
    low, high = interval_of_mean(values)
    assert interval_of_mean(values + 1) == (pytest.approx(low + 1), pytest.approx(high + 1))


@pytest.mark.parametrize("values", [[], [1.0], [1.0, np.nan]])
def test_one_unit_has_no_interval(values):
    assert interval_of_mean(np.array(values)) == (None, None)


def test_what_does_not_apply_is_left_out():
    values = np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    with_gaps = np.array([1.0, np.nan, 0.0, 1.0, np.nan, 1.0, 0.0])
    assert interval_of_mean(with_gaps) == interval_of_mean(values)


def test_no_spread_is_no_width():
    assert interval_of_mean(np.ones(30)) == (1.0, 1.0)


def test_an_end_that_is_not_finite_is_none():
    values = np.array([1.0, 2.0, 3.0, np.inf, 2.0, 1.0])
    low, high = interval_of_mean(values)
    assert low is not None and 1 <= low <= 3 and high is None
