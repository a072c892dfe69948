"""STRING: exact distances within the window, shifted ones beyond it."""

import math

import pytest
import torch
from test_rerope import FAR, POS, D, T, compared, scores_by_pairs, scores_of

from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.string import STRING


def shifted(window, local):
    def distance(i, j):
        d = abs(i - j)
        return math.copysign(d if d < window else d - window + local, i - j)

    return distance


@pytest.mark.parametrize(
    ("window", "local", "pos", "causal"),
    [(5, 2, POS, True), (6, 1, FAR, False), (3, 3, FAR, True), (1, 4, POS, False)],
    ids=["decoder", "encoder, far", "decoder, far, rope", "encoder"],
)
def test_each_pair_is_turned_by_its_shifted_distance(window, local, pos, causal, size_of, agree):
    q, k = torch.randn(2, 2, 2, T, D)
    context = AttentionContext(pos, pos, causal=causal)
    encoding = STRING(size_of(d_model=2 * D, num_heads=2, causal=causal), window=window, local=local)
    expected = scores_by_pairs(q, k, pos, pos, shifted(window, local))
    got = scores_of(encoding, q, k, context)
    seen, zero = compared(context, causal), torch.zeros(())
    agree(
        torch.where(seen, got, zero), torch.where(seen, expected, zero),
        encoding="string", against="a loop over the shifted distances",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_without_a_shift_it_is_rope(kind, model_of, tokens, agree):
    row = tokens(2, 32)
    for options in ({"window": 32}, {"window": 6, "local": 6}):
        got = model_of({"name": "string", **options}, kind)(row)
        agree(got, model_of("rope", kind)(row), encoding="string", against="rope, nothing shifted")


def test_window_and_local_distance_follow_the_trained_length(size_of):
    def of(length):
        encoding = STRING(size_of(length=length))
        return encoding.window, encoding.local

    assert [of(length) for length in (131072, 768, 256, 1)] == [(43690, 128), (256, 128), (85, 42), (1, 1)]
