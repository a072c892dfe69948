"""Dual chunk attention: three ranges of distances, and where they are those of RoPE."""

import pytest
import torch
from test_rerope import D, T, scores_by_pairs, scores_of

from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.dual_chunk import DualChunk
from zoo.encodings.rotary.rope import RoPE
from zoo.errors import InputError

POS = torch.arange(T)
FAR = torch.stack((POS, POS + 41))


def chunked(longest, window):
    """The distance of a query at i from a key at j, not later."""
    c = longest - window

    def distance(i, j):
        if i // c == j // c:
            return i - j
        if i // c == j // c + 1:
            return min(i % c + c, longest) - j % c
        return min(2 * c - 1, longest) - j % c

    return distance


@pytest.fixture
def dual_chunk(size_of):
    def dual_chunk(**options):
        return DualChunk(size_of(d_model=2 * D, num_heads=2), **options)

    return dual_chunk


@pytest.mark.parametrize(
    ("longest", "window", "pos"), [(6, 2, POS), (5, 4, FAR), (9, 1, FAR), (40, 3, POS), (4, 1, POS)]
)
def test_each_pair_is_turned_by_the_distance_of_its_range(longest, window, pos, dual_chunk, agree):
    q, k = torch.randn(2, 2, 2, T, D)
    encoding, context = dual_chunk(longest=longest, window=window), AttentionContext(pos, pos)
    got = scores_of(encoding, q, k, context).tril()
    expected = scores_by_pairs(q, k, pos, pos, chunked(longest, window)).tril()
    agree(got, expected, encoding="dual_chunk", against="a loop over the positions in chunks")


def test_layout_and_partial_are_those_of_rope(dual_chunk, agree):
    q, k = torch.randn(2, 1, 2, T, D)
    encoding = dual_chunk(longest=5, window=2, layout="interleaved", partial=0.5)
    got = scores_of(encoding, q, k, AttentionContext(POS, POS)).tril()
    expected = scores_by_pairs(q, k, POS, POS, chunked(5, 2), width=4, half=False).tril()
    agree(got, expected, encoding="dual_chunk", against="a loop, half the width interleaved")


@pytest.mark.parametrize(("longest", "window"), [(4, 2), (6, 2), (12, 3), (48, 8)])
def test_distances_up_to_the_window_are_those_of_rope(longest, window, dual_chunk, size_of):
    pos = torch.arange(100)
    q, k = torch.randn(2, 1, 2, 100, D)
    apart = pos[:, None] - pos
    got = scores_of(dual_chunk(longest=longest, window=window), q, k, AttentionContext(pos, pos))
    rope = scores_of(RoPE(size_of(d_model=2 * D, num_heads=2)), q, k, AttentionContext(pos, pos))
    near = (apart >= 0) & (apart <= window)
    torch.testing.assert_close(got[..., near], rope[..., near], rtol=0, atol=1e-5)
    assert (got - rope)[..., apart > longest].abs().max() > 1e-1


def test_within_a_chunk_it_is_rope(model_of, tokens, agree):
    row = tokens(2, 32)
    got = model_of({"name": "dual_chunk", "longest": 35, "window": 3})(row)
    agree(got, model_of("rope")(row), encoding="dual_chunk", against="rope, one chunk")
    got = model_of({"name": "dual_chunk", "longest": 20, "window": 8})(row)
    difference = (got - model_of("rope")(row)).abs().amax((0, 2))
    # In row 21 the query is the tenth of its chunk, and the first key is farther than 20.
    assert difference[:21].max() < 1e-5 and difference[21:24].min() > 1e-3


def test_the_ranges_follow_the_trained_length(size_of, model_of):
    def of(length):
        encoding = DualChunk(size_of(length=length))
        return encoding.longest, encoding.window, encoding.chunk

    assert [of(length) for length in (4096, 256, 8, 1)] == [
        (3072, 512, 2560), (192, 32, 160), (6, 1, 5), (2, 1, 1),
    ]  # fmt: skip
    with pytest.raises(InputError, match="window 7 must be below the longest distance 7"):
        model_of({"name": "dual_chunk", "longest": 7, "window": 7})
