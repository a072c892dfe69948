"""Clipped RoPE against a loop over the formula of the authors' code."""

import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.rope import RoPE
from zoo.encodings.rotary.rope_clipped import ClippedRoPE

D, H, T = 32, 2, 11
POS = torch.arange(T)


@pytest.fixture
def size(size_of):
    return size_of(d_model=H * D, num_heads=H)


def turned(encoding, q, k):
    return encoding.rotate(q, k, AttentionContext(POS, POS))


@pytest.mark.parametrize(("clipped", "count", "form", "layout"), [
    (None, 5, "soft", "half"), (None, 5, "hard", "interleaved"), (0.0, 0, "soft", "interleaved"),
    (0.0625, 1, "soft", "half"), (0.0625, 1, "hard", "interleaved"), (0.125, 2, "soft", "interleaved"),
    (0.5, 8, "hard", "half"), (1.0, 16, "soft", "half"),
])  # fmt: skip
def test_a_loop_over_the_formula(clipped, count, form, layout, size, agree):
    encoding = ClippedRoPE(
        size, layout=layout, form=form, **({} if clipped is None else {"clipped": clipped})
    )
    q, k = torch.randn(2, 2, H, T, D)
    expected, pairs = [q.clone(), k.clone()], D // 2
    for pair in range(pairs):
        f = 10000 ** (-2 * pair / D)
        m = pair - (pairs - count)
        if m >= 0 and form == "hard":
            f = 0.0
        elif m >= 0 and count > 1:
            f *= (1 + math.cos(math.pi * m / (count - 1))) / 2
        one, other = (pair, pair + pairs) if layout == "half" else (2 * pair, 2 * pair + 1)
        for p in range(T):
            cos, sin = math.cos(p * f), math.sin(p * f)
            for x, out in zip((q, k), expected, strict=True):
                out[:, :, p, one] = x[:, :, p, one] * cos - x[:, :, p, other] * sin
                out[:, :, p, other] = x[:, :, p, one] * sin + x[:, :, p, other] * cos
    for got, right in zip(turned(encoding, q, k), expected, strict=True):
        agree(got, right, encoding="rope_clipped", against="a loop over the formula")


def test_the_default_clips_twenty_pairs_of_a_head_of_width_128(size_of):
    size = size_of(d_model=256, num_heads=2)
    plain = RoPE(size).frequency
    for form, kept in (("soft", 45), ("hard", 44)):
        frequency = ClippedRoPE(size, form=form).frequency
        assert torch.equal(frequency[:kept], plain[:kept])
        assert (frequency[kept:] < plain[kept:]).all()
        assert frequency[-1] == 0
