"""Sums over tokens stay in float32 under autocast: a bf16 sum over 1,200 tokens is off by whole units."""

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import build_encoding


@pytest.mark.parametrize("name", ["fox", "cable", "path"])
def test_scores_are_computed_in_float32(name, size_of):
    encoding, length = build_encoding(name, size_of()), 100 if name == "path" else 1200
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, (q, k) = torch.randn(1, length, 48).bfloat16(), torch.randn(2, 1, 6, length, 8).bfloat16()

    def score(x, q, k):
        pos = torch.arange(length)
        return encoding.score(q, k, AttentionContext(pos, pos, features=encoding.read(x))).detach()

    exact = score(x.float(), q.float(), k.float())
    with torch.autocast("cpu", torch.bfloat16):
        low = score(x, q, k)
    assert low.dtype == torch.float32
    assert torch.equal(low, exact)
