"""How often the intervals hold the truth: by simulation, against the 95 % that they promise.

Documents are as those of WikiText-2: sizes log-normal with a deviation of 0.8 of their logarithm (0.68 in the
validation text, 0.86 in the whole), losses per byte that differ by a tenth from document to document.
"""

import numpy as np
import pytest

from zoo.evaluation.interval import (
    combined,
    interval_of_mean,
    interval_of_rate,
    interval_of_rate_difference,
    interval_of_ratio,
)

DOCUMENTS = (5, 10, 17, 41, 60)
LEAST = 0.935
"""What 4,000 repetitions of an interval of exactly 94 % come to at least, nineteen times of twenty."""


def texts(rng, count, slope=0.0):
    """Losses and sizes of documents; `slope`: how much the loss per byte follows the size, in deviations."""
    size = rng.normal(0, 1, count)
    noise = 0.13 * rng.normal(size=count) + 0.05 * (rng.exponential(size=count) - 1)
    sizes = np.exp(9.5 + 0.8 * size)
    return (2.3 + slope * size + noise) * sizes, sizes


def coverage(rng, count, repetitions, slope=0.0):
    amounts, sizes = texts(rng, 2_000_000, slope)
    truth = amounts.sum() / sizes.sum()
    return held(lambda: interval_of_ratio(*texts(rng, count, slope)), truth, repetitions)


def held(make, truth, repetitions):
    return np.mean([low <= truth <= high for low, high in (make() for _ in range(repetitions))])


def test_of_ten_documents_it_holds_as_often_as_promised():
    assert 0.92 <= coverage(np.random.default_rng(0), 10, 600) <= 0.985


def test_a_rate_near_one_holds():
    rng = np.random.default_rng(0)
    assert held(lambda: interval_of_rate(rng.random(1024) < 0.997), 0.997, 600) >= 0.92


@pytest.mark.slow
@pytest.mark.parametrize("count", DOCUMENTS)
def test_of_few_and_many_documents(count):
    assert LEAST <= coverage(np.random.default_rng(count), count, 4000) <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize("count", DOCUMENTS)
def test_where_long_documents_are_easier(count):
    """Here the ratio itself is skewed, and nothing that is made of so few documents holds in full."""
    assert coverage(np.random.default_rng(count), count, 4000, slope=-0.05) >= 0.92


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99, 0.997, 0.999])
def test_of_rates(rate):
    rng = np.random.default_rng(0)
    assert held(lambda: interval_of_rate(rng.random(1024) < rate), rate, 4000) >= LEAST


@pytest.mark.slow
@pytest.mark.parametrize("count", DOCUMENTS)
def test_of_paired_differences_of_documents(count):
    """Two models on the same documents; the difference, too, is another one from document to document."""
    rng = np.random.default_rng(count)

    def once():
        _, sizes = texts(rng, count)
        return interval_of_ratio((0.02 + 0.03 * rng.normal(size=count)) * sizes, sizes)

    assert LEAST <= held(once, 0.02, 4000) <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize("one, other, alike", [
    (0.997, 0.99, 1), (0.999, 0.997, 1), (1.0, 0.999, 1), (1.0, 1.0, 1), (0.5, 0.45, 0.5), (0.9, 0.9, 0.5),
    (0.995, 0.99, 0), (0.9, 0.1, 0), (0.6, 0.5, -1),
])  # fmt: skip
def test_of_paired_differences_of_rates(one, other, alike):
    """`alike`: the share of examples at which both models err by the same draw; -1: by the opposite one."""
    rng = np.random.default_rng(0)

    def once():
        draw = rng.random(1024)
        theirs = 1 - draw if alike < 0 else np.where(rng.random(1024) < alike, draw, rng.random(1024))
        return interval_of_rate_difference((draw < one) * 1.0 - (theirs < other))

    # A difference of two of 1,024 is a coarse thing: 94 % less the noise of the simulation.
    assert held(once, one - other, 4000) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("documents", (10, 60))
@pytest.mark.parametrize("seeds", (2, 3, 5))
@pytest.mark.parametrize("of_seed, of_document, of_both", [
    (0.02, 0.05, 0.02), (0.0, 0.05, 0.02), (0.05, 0.02, 0.02), (0.01, 0.02, 0.1),
])  # fmt: skip
def test_over_seeds_and_documents(seeds, documents, of_seed, of_document, of_both):
    rng = np.random.default_rng(seeds)

    def once():
        _, sizes = texts(rng, documents)
        rates = 0.1 + of_document * rng.normal(size=documents) + of_seed * rng.normal(size=(seeds, 1))
        amounts = (rates + of_both * rng.normal(size=(seeds, documents))) * sizes
        of_seeds = amounts.sum(1) / sizes.sum()
        over_documents = interval_of_ratio(amounts.mean(0), sizes)
        return combined(of_seeds.mean(), over_documents, interval_of_mean(of_seeds))

    assert held(once, 0.1, 2000) >= LEAST
