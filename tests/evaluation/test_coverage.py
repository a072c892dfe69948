"""The coverage of intervals, against the 95 % that they promise; tables: docs/coverage.md."""

import numpy as np
import pytest

import simulate_coverage as simulation
from zoo.evaluation.protocols.text import Losses, Text

LEAST = 0.935
"""Share of 4,000 intervals of exactly 94 % that holds at least, nineteen times of twenty."""


def test_of_ten_documents_and_of_a_rate_near_one():
    assert 0.92 <= simulation.of_documents(10, 600) <= 0.985
    assert simulation.of_rate(0.997, 600) >= 0.92


def test_of_blocks_of_one_text(text_recipe, bigram):
    """The intervals of the text protocols over 16 blocks of a text whose losses are alike over 3 tokens."""
    task, source = bigram(text_recipe("decoder", "few", "evaluate.max_tokens=640", "evaluate.lengths=[20]"))
    text, rng = Text(task, source, [20]), np.random.default_rng(0)
    pairs = np.arange(640)

    def once():
        numbers = text.numbers_of(Losses(pairs, simulation.one_text(rng, 640, 3), pairs))
        assert len(numbers["blocks"].blocks) == 16
        return numbers["loss_nats_low"], numbers["loss_nats_high"]

    assert 0.92 <= simulation.held(once, 3.0, 400) <= 0.985


def test_of_scores_over_ten_seeds():
    kept, apart = simulation.of_scores([(0.5, 0.02), (0.9, 0.005), (0.2, 0.01), (0.99, 0)], 10, 20)
    assert kept >= 0.85 and apart <= 0.12


def test_of_places_over_three_seeds():
    profiles = [[(mean, 0.01)] * 3 for mean in (0.1, 0.3, 0.5, 0.5, 0.7, 0.9)]
    kept, width = simulation.of_places(profiles, 3, 20)
    assert kept >= 0.93 and 1 <= width <= 5


@pytest.mark.slow
def test_of_documents_and_their_paired_differences():
    for count in (5, 17, 60):
        assert LEAST <= simulation.of_documents(count, 4000) <= 0.985
        # Here the ratio itself is skewed, and no interval of so few documents holds in full.
        assert simulation.of_documents(count, 4000, slope=-0.05) >= 0.92
        assert LEAST <= simulation.of_paired_documents(count, 4000) <= 0.985


@pytest.mark.slow
def test_of_rates_their_differences_and_seeds():
    for rate in (0.5, 0.99, 0.999):
        assert simulation.of_rate(rate, 4000) >= LEAST
    # A difference of two of 1,024 is a coarse thing: 94 % less the noise of the simulation.
    for one, other, alike in ((1.0, 0.999, 1), (0.5, 0.45, 0.5), (0.9, 0.1, 0), (0.6, 0.5, -1)):
        assert simulation.of_paired_rates(one, other, alike, 4000) >= 0.93
    for seeds, count, deviations in ((2, 10, (0.02, 0.05, 0.02)), (3, 60, (0.05, 0.02, 0.02))):
        assert simulation.of_seeds_and_documents(seeds, count, deviations, 2000) >= LEAST
