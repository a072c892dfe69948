"""Intervals against the code of scipy, and at the edges. How often they hold: test_coverage.py."""

import numpy as np
import pytest
from scipy import stats

from zoo.evaluation.interval import (
    combined,
    interval_of_mean,
    interval_of_rate,
    interval_of_rate_difference,
    interval_of_ratio,
)

UNKNOWN = (None, None)


def test_units_of_one_size_have_the_t_interval_of_their_mean():
    rng = np.random.default_rng(0)
    values = rng.normal(3, 0.5, 12)
    low, high = interval_of_ratio(7 * values, np.full(12, 7.0))
    # But for the leverage of each, 1/12, and n instead of n - 1 in the spread.
    t = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (high - low) / (t.high - t.low) == pytest.approx((12 / 11) ** 0.5)
    assert (low + high) / 2 == pytest.approx(values.mean())


def test_a_ratio_of_sums_weighs_long_documents_more():
    sizes = np.array([10.0, 20.0, 400.0, 30.0, 25.0])
    rates = np.array([1.0, 1.2, 3.0, 1.1, 0.9])
    low, high = interval_of_ratio(rates * sizes, sizes)
    assert low < (rates * sizes).sum() / sizes.sum() < high
    # One of five documents has four fifths of the text: hardly anything is known of others like it.
    equal = interval_of_ratio(rates, np.ones(5))
    assert high - low > 2 * (equal[1] - equal[0])


def test_a_rate_has_wilsons_interval():
    for right, count in ((1021, 1024), (1024, 1024), (0, 50), (7, 9), (1, 1)):
        scores = np.array([1.0] * right + [0.0] * (count - right))
        expected = stats.binomtest(right, count).proportion_ci(method="wilson")
        assert interval_of_rate(scores) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_scores_that_are_nan_are_left_out():
    with_gaps = np.array([1.0, np.nan, 0.0, 1.0, np.nan, 1.0, 0.0])
    assert interval_of_rate(with_gaps) == interval_of_rate(with_gaps[~np.isnan(with_gaps)])


def test_a_difference_of_rates_against_newcombes_square_and_add():
    """Table of two raters' answers to the same 1,000 examples: both right, one, the other, none."""
    better, worse, count = 60, 25, 1000
    differences = np.repeat([1.0, -1.0, 0.0], [better, worse, count - better - worse])
    (low_b, high_b), (low_w, high_w) = (
        stats.binomtest(k, count).proportion_ci(method="wilson") for k in (better, worse)
    )
    b, w = better / count, worse / count
    r = -((b * w / ((1 - b) * (1 - w))) ** 0.5)
    below = ((b - low_b) ** 2 - 2 * r * (b - low_b) * (high_w - w) + (high_w - w) ** 2) ** 0.5
    above = ((high_b - b) ** 2 - 2 * r * (high_b - b) * (w - low_w) + (w - low_w) ** 2) ** 0.5
    expected = b - w - below, b - w + above
    assert interval_of_rate_difference(differences) == pytest.approx(expected)
    # The other way round it is the same one mirrored.
    low, high = interval_of_rate_difference(-differences)
    assert (-high, -low) == pytest.approx(expected)


def test_seeds_have_students_interval():
    values = [1.0, 1.3, 1.1]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert interval_of_mean(values) == pytest.approx((expected.low, expected.high))


def test_two_sources_of_change_are_wider_than_either_and_narrower_than_their_sum():
    low, high = combined(1.0, (0.7, 1.3), (0.6, 1.8))
    assert (low, high) == pytest.approx((0.5, 1.0 + (0.3**2 + 0.8**2) ** 0.5))
    assert combined(1.0, (0.7, 1.3)) == pytest.approx((0.7, 1.3))
    assert combined(1.0, (0.7, 1.3), UNKNOWN) == combined(1.0) == UNKNOWN


def test_too_few_units_or_a_loss_that_is_not_finite_have_no_interval():
    for amounts, sizes in (
        ([], []), ([3.0], [2.0]), ([3.0, 0.0], [2.0, 0.0]), ([1.0, np.inf, 2.0], [1.0, 1.0, 1.0]),
        ([1.0, np.nan, 2.0], [1.0, 1.0, 1.0]), ([1.0, 2.0], [0.0, 0.0]),
    ):  # fmt: skip
        assert interval_of_ratio(np.array(amounts), np.array(sizes)) == UNKNOWN
    for values in ([], [1.0], [1.0, np.inf]):
        assert interval_of_mean(values) == UNKNOWN
    assert interval_of_rate(np.array([])) == interval_of_rate_difference(np.array([])) == UNKNOWN
