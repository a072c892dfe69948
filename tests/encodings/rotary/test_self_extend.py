"""Self-Extend: exact distances near by, those between groups further off."""

import math

import pytest
import torch
from test_rerope import FAR, POS, D, T, compared, scores_by_pairs, scores_of

from zoo.encodings.base import Span
from zoo.encodings.rotary.self_extend import SelfExtend


@pytest.fixture
def self_extend(size_of):
    def self_extend(causal=True, **options):
        return SelfExtend(size_of(d_model=2 * D, num_heads=2, length=6, causal=causal), **options)

    return self_extend


def grouped(window, group):
    def distance(i, j):
        if abs(i - j) < window:
            return i - j
        gap = window - window // group
        return i // group - j // group + math.copysign(gap, i - j)

    return distance


@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
@pytest.mark.parametrize("pos", [POS, FAR], ids=["from 0", "each its own"])
@pytest.mark.parametrize(("window", "group"), [(3, 2), (4, 3), (1, 8), (5, 5)])
def test_each_pair_is_turned_by_the_distance_of_its_groups(window, group, pos, causal, self_extend, agree):
    q, k, span = torch.randn(2, 2, T, D), torch.randn(2, 2, T, D), Span(pos, pos, causal=causal)
    expected = scores_by_pairs(q, k, pos, pos, grouped(window, group))
    got = scores_of(self_extend(causal, window=window, group=group), q, k, span)
    seen, zero = compared(span, causal), torch.zeros(())
    agree(
        torch.where(seen, got, zero), torch.where(seen, expected, zero),
        encoding="self_extend", against="a loop over the distances of groups",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("options", [{"window": 32}, {"window": 3, "group": 1}], ids=str)
def test_groups_of_one_are_rope(options, kind, model_of, tokens, agree):
    row = tokens(2, 32)
    got = model_of({"name": "self_extend", **options}, kind)(row)
    agree(got, model_of("rope", kind)(row), encoding="self_extend", against="rope, nothing grouped")


def test_a_smaller_window_is_not(model_of, tokens):
    row = tokens(2, 32)
    difference = (model_of({"name": "self_extend", "window": 8})(row) - model_of("rope")(row)).abs()
    assert difference[:, :8].max() < 1e-5 and difference[:, 10:].amax((0, 2)).min() > 1e-4


@pytest.mark.parametrize(("window", "group"), [(4, 3), (8, 4), (3, 8)])
def test_the_farthest_distance_stays_within_the_trained_length(window, group):
    """A trained length L holds (L - W) G + W tokens."""
    length = 16
    reach = (length - window) * group + window
    distance = grouped(window, group)
    assert max(distance(i, j) for i in range(reach) for j in range(i + 1)) <= length
