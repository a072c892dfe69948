"""Sandwich against a loop over the paper's formula, up to a constant for each query."""

import math

import pytest
import torch

from zoo.encodings.bias.sandwich import Sandwich
from zoo.encodings.context import AttentionContext

LENGTH = 24


def published(heads, length, dim):
    """sum_k cos((i - j) / 10000^(2k/dim)) / r_h with r_h = 8h/H, h from 1."""
    bias = torch.zeros(heads, length, length, dtype=torch.float64)
    for h in range(heads):
        for i in range(length):
            for j in range(length):
                total = sum(math.cos((i - j) / 10000 ** (2 * k / dim)) for k in range(dim // 2))
                bias[h, i, j] = total / (8 * (h + 1) / heads)
    return bias


@pytest.mark.parametrize(("causal", "heads", "dim"), [(True, 8, 128), (False, 6, 32), (False, 12, 2)])
def test_the_formula_of_the_paper(causal, heads, dim, size_of, agree):
    pos = torch.arange(LENGTH)
    encoding = Sandwich(size_of(num_heads=heads, causal=causal), dim=dim)
    expected = published(heads, LENGTH, dim)
    # The same for all keys of a query: what a key at distance 0 would get.
    expected = (expected - expected[:, :1, :1]).float()
    for consecutive in (True, False):
        actual = encoding.bias_table(
            AttentionContext(pos, pos, causal=causal, consecutive=consecutive), heads
        )
        agree(actual, expected, encoding="sandwich", against="loop over the formula of the paper")
