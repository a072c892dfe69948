"""Choices from random words: each in its range, none from a word that was used before."""

from collections import Counter

import numpy as np
import pytest

from zoo.data.draws import Chance, Draws


def chance(row=0, ahead=64):
    return Chance(Draws("test"), row, ahead)


def test_no_word_is_used_twice():
    one = chance()
    drawn = [one.words(count) for count in (1, 4, 7, 64)]
    one.below(10)
    drawn.append(one.words(3))
    words = np.concatenate(drawn)
    assert len(set(words.tolist())) == len(words)
    assert not set(words.tolist()) & set(chance(row=1).words(200).tolist())


def test_the_same_row_gives_the_same_choices():
    def choices(row):
        one = chance(row)
        return one.numbers(5, 9), one.below(9), one.distinct(3, 9), [one.below(9) for _ in range(100)]

    assert choices(3) == choices(3) != choices(4)


def test_numbers_are_uniform():
    for limit in (1, 2, 7, 1000):
        one = chance()
        for drawn in (one.numbers(20000, limit), [one.below(limit) for _ in range(20000)]):
            counts, expected = Counter(drawn), 20000 / limit
            assert set(counts) <= set(range(limit))
            # Six standard deviations.
            assert all(abs(counts[number] - expected) <= 6 * expected**0.5 for number in range(limit))


def test_distinct_numbers_differ_and_each_order_is_as_likely():
    counts = Counter(tuple(chance(row).distinct(2, 4)) for row in range(6000))
    assert len(counts) == 12 and all(len(set(places)) == 2 for places in counts)
    assert all(abs(count - 500) < 6 * 500**0.5 for count in counts.values())
    with pytest.raises(ValueError, match="5 different"):
        chance().distinct(5, 4)
