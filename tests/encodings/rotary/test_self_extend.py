"""Self-Extend: exact distances within the window, distances between groups beyond it."""

import math

import pytest
import torch
from test_rerope import FAR, POS, D, T, compared, scores_by_pairs, scores_of

from zoo.encodings.context import AttentionContext
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


@pytest.mark.parametrize(
    ("window", "group", "pos", "causal"),
    [(3, 2, POS, True), (4, 3, FAR, False), (1, 8, FAR, True), (5, 5, POS, False)],
    ids=["decoder", "encoder, far", "decoder, far", "encoder"],
)
def test_each_pair_is_turned_by_the_distance_of_its_groups(window, group, pos, causal, self_extend, agree):
    q, k, context = (
        torch.randn(2, 2, T, D),
        torch.randn(2, 2, T, D),
        AttentionContext(pos, pos, causal=causal),
    )
    expected = scores_by_pairs(q, k, pos, pos, grouped(window, group))
    got = scores_of(self_extend(causal, window=window, group=group), q, k, context)
    seen, zero = compared(context, causal), torch.zeros(())
    agree(
        torch.where(seen, got, zero), torch.where(seen, expected, zero),
        encoding="self_extend", against="a loop over the distances of groups",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_groups_of_one_are_rope(kind, model_of, tokens, agree):
    row = tokens(2, 32)
    for options in ({"window": 32}, {"window": 3, "group": 1}):
        got = model_of({"name": "self_extend", **options}, kind)(row)
        agree(got, model_of("rope", kind)(row), encoding="self_extend", against="rope, nothing grouped")
