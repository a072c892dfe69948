"""ReRoPE and Leaky ReRoPE: every pair at its own, clipped distance."""

import cmath
import math

import pytest
import torch

from zoo.encodings.context import AttentionContext, per_query_and_key
from zoo.encodings.rotary.rerope import ReRoPE

D, T, LENGTH = 8, 14, 6
POS = torch.arange(T)
FAR = torch.stack((POS, POS + 40))


@pytest.fixture
def rerope(size_of):
    def rerope(causal=True, **options):
        return ReRoPE(size_of(d_model=2 * D, num_heads=2, length=LENGTH, causal=causal), **options)

    return rerope


def scores_by_pairs(
    q, k, q_pos, k_pos, distance_of, width=D, half=True, scale_of=lambda p: 1.0, frequency=None
):
    """Scores [B,H,T,S]: each pair of a query and a key turned by the distance from `distance_of`."""
    frequency = frequency or [10000 ** (-2 * pair / width) for pair in range(width // 2)]
    scores = torch.zeros(*q.shape[:3], k.shape[2], dtype=torch.float64)
    for b, h, t, s in torch.cartesian_prod(*(torch.arange(n) for n in scores.shape)).tolist():
        i, j = (pos[b if pos.dim() == 2 else 0, row].item() if pos.dim() == 2 else pos[row].item()
                for pos, row in ((q_pos, t), (k_pos, s)))  # fmt: skip
        one, other = q[b, h, t].tolist(), k[b, h, s].tolist()
        total = sum(x * y for x, y in zip(one[width:], other[width:], strict=True))
        for pair in range(width // 2):
            at = (pair, pair + width // 2) if half else (2 * pair, 2 * pair + 1)
            a, c = complex(one[at[0]], one[at[1]]), complex(other[at[0]], other[at[1]])
            total += (a * c.conjugate() * cmath.exp(1j * distance_of(i, j) * frequency[pair])).real
        scores[b, h, t, s] = scale_of(i) * total / math.sqrt(q.shape[-1])
    return scores.float()


def scores_of(encoding, q, k, context):
    """The scores of a layer with the encoding, before the mask."""
    turned_q, turned_k = encoding.rotate(q, k, context)
    return encoding.logits(turned_q @ turned_k.transpose(-1, -2) * D**-0.5, q, k, context)


def clipped(window, leak):
    def distance(i, j):
        d = abs(i - j)
        return math.copysign(d if d < window else window + leak * (d - window), i - j)

    return distance


def compared(context, causal):
    """The visible pairs; a decoder promises nothing of the others."""
    i, j = per_query_and_key(context.q_pos, context.k_pos)
    return (j <= i) if causal else torch.ones_like(i >= j)


@pytest.mark.parametrize(
    ("window", "leak", "log_scale", "pos", "causal"),
    [
        (3, 0.0, False, POS, True),
        (3, 0.0, True, FAR, False),
        (4, 1 / 16, True, FAR, True),
        (1, 0.5, False, POS, False),
    ],
    ids=["decoder", "encoder, scaled, far", "decoder, leaky, scaled, far", "encoder, leaky"],
)
def test_each_pair_is_turned_by_its_clipped_distance(window, leak, log_scale, pos, causal, rerope, agree):
    q, k, context = (
        torch.randn(2, 2, T, D),
        torch.randn(2, 2, T, D),
        AttentionContext(pos, pos, causal=causal),
    )
    encoding = rerope(causal, window=window, leak=leak, log_scale=log_scale)
    expected = scores_by_pairs(
        q, k, pos, pos, clipped(window, leak),
        scale_of=lambda p: max(1.0, math.log(p + 1) / math.log(LENGTH)) if log_scale else 1.0,
    )  # fmt: skip
    seen = compared(context, causal)
    got = scores_of(encoding, q, k, context)
    zero = torch.zeros(())
    agree(
        torch.where(seen, got, zero), torch.where(seen, expected, zero),
        encoding="rerope", against="a loop over the clipped distances",
    )  # fmt: skip


def test_layout_and_partial_are_those_of_rope(rerope, agree):
    q, k = torch.randn(1, 2, T, D), torch.randn(1, 2, T, D)
    encoding = rerope(window=3, log_scale=False, layout="interleaved", partial=0.5)
    got = scores_of(encoding, q, k, AttentionContext(POS, POS)).tril()
    expected = scores_by_pairs(q, k, POS, POS, clipped(3, 0.0), width=4, half=False).tril()
    agree(got, expected, encoding="rerope", against="a loop, half the width interleaved")


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_a_window_as_long_as_the_sequence_is_rope(kind, model_of, tokens, agree):
    row = tokens(2, 32)
    for options in ({"window": 32}, {"window": 33}, {"window": 3, "leak": 1.0}):
        rerope = model_of({"name": "rerope", "log_scale": False, **options}, kind)
        agree(rerope(row), model_of("rope", kind)(row), encoding="rerope", against="rope, nothing clipped")


def test_a_bias_added_to_the_scores_is_kept(model_of, tokens, rerope):
    q, k, context = torch.randn(1, 2, T, D), torch.randn(1, 2, T, D), AttentionContext(POS, POS)
    encoding, added = rerope(window=3), torch.randn(1, 2, T, T)
    turned_q, turned_k = encoding.rotate(q, k, context)
    scores = turned_q @ turned_k.transpose(-1, -2) * D**-0.5
    got = encoding.logits(scores + added, q, k, context) - encoding.logits(scores, q, k, context)
    torch.testing.assert_close(got, added, rtol=0, atol=1e-5)
    # And so in a model.
    row, long = tokens(2, 32), {"name": "rerope", "window": 32, "log_scale": False}
    both, rope = model_of(["alibi", long])(row), model_of(["alibi", "rope"])(row)
    torch.testing.assert_close(both, rope, rtol=0, atol=1e-5)


def test_the_window_is_a_quarter_of_the_trained_length(size_of):
    assert ReRoPE(size_of(length=4096)).window == 1024
    assert ReRoPE(size_of(length=2)).window == 1
