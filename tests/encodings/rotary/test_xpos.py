"""xPos against x-transformers, a loop over the formula and RoPE, and the limits of its multipliers."""

import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.xpos import XPos
from zoo.encodings.stack import LayerEncodings
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

D, H, T = 16, 4, 13


@pytest.fixture
def size(size_of):
    return size_of(d_model=H * D, num_heads=H)


def heads(length=T, batch=2, dtype=torch.float32):
    return torch.randn(2, batch, H, length, D, dtype=dtype)


def scores(encoding, q, k, pos):
    q, k = encoding.rotate(q, k, AttentionContext(pos, pos))
    return q @ k.transpose(-1, -2)


def past(table):
    """The scores of queries with keys that are not ahead of them; the others are never used."""
    return table.tril()


@pytest.mark.parametrize(("scale_base", "length"), [(16, T), (512, T + 1)])
def test_x_transformers(scale_base, length, size, agree):
    x_transformers = pytest.importorskip("x_transformers.x_transformers")
    theirs = x_transformers.RotaryEmbedding(D, use_xpos=True, scale_base=scale_base)
    frequencies, scale = theirs(torch.arange(length))
    q, k = heads(length)
    right_q = x_transformers.apply_rotary_pos_emb(q, frequencies, scale)
    right_k = x_transformers.apply_rotary_pos_emb(k, frequencies, scale**-1.0)
    pos = torch.arange(length)
    encoding = XPos(size, scale_base=scale_base)
    proof = {"encoding": "xpos", "against": "x_transformers RotaryEmbedding (use_xpos)"}
    agree(scores(encoding, q, k, pos), right_q @ right_k.transpose(-1, -2), **proof)
    if length % 2:
        # Only then is their middle the middle, and the vectors are equal one by one.
        for got, right in zip(
            encoding.rotate(q, k, AttentionContext(pos, pos)), (right_q, right_k), strict=True
        ):
            agree(got, right, **proof)


@pytest.mark.parametrize(("layout", "scale_base"), [("interleaved", 512.0), ("half", 16.0)])
def test_a_loop_over_the_formula(layout, scale_base, size, agree):
    """score_ij = sum_k z_k^((i-j)/scale_base) Re(q_ik conj(k_jk) e^(i (i-j) f_k))."""
    q, k = heads(batch=1)
    expected = torch.zeros(1, H, T, T)
    for h in range(H):
        for i in range(T):
            for j in range(i + 1):
                total = 0.0
                for pair in range(D // 2):
                    places = (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, pair + D // 2)
                    a = complex(*(q[0, h, i, place].item() for place in places))
                    b = complex(*(k[0, h, j, place].item() for place in places))
                    zeta = (2 * pair / D + 0.4) / 1.4
                    angle = (i - j) * 10000 ** (-2 * pair / D)
                    turned = a * b.conjugate() * complex(math.cos(angle), math.sin(angle))
                    total += zeta ** ((i - j) / scale_base) * turned.real
                expected[0, h, i, j] = total
    got = scores(XPos(size, layout=layout, scale_base=scale_base), q, k, torch.arange(T))
    agree(past(got), expected, encoding="xpos", against="a loop over the formula")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_longest_sequence_is_finite_and_a_longer_one_refused(dtype, size):
    encoding = XPos(size, scale_base=8.0)
    longest = 26 if dtype == torch.float16 else 522
    q, k = heads(longest, batch=1, dtype=dtype)
    pos = torch.arange(longest)
    turned = encoding.rotate(q, k, AttentionContext(pos, pos))
    assert all(one.isfinite().all() for one in turned)
    assert (turned[0] @ turned[1].transpose(-1, -2)).isfinite().all()
    pos = torch.arange(longest + 1)
    with pytest.raises(ValueError, match=f"{longest + 1} tokens, but beyond {longest} .* {dtype}"):
        encoding.rotate(*heads(longest + 1, batch=1, dtype=dtype), AttentionContext(pos, pos))


def test_the_gradients_of_the_longest_sequence_are_finite(size):
    encoding, longest = XPos(size, scale_base=8.0), 522
    pos = torch.arange(longest)
    context = AttentionContext(pos, pos)
    q, k = (x.requires_grad_() for x in heads(longest, batch=1))
    v = torch.randn(1, H, longest, D)
    out = attend(
        *encoding.rotate(q, k, context), v, ScoreTerms(LayerEncodings([encoding]), [context]), D**-0.5
    )
    out.square().mean().backward()
    assert out.isfinite().all()
    assert q.grad.isfinite().all()
    assert k.grad.isfinite().all()
