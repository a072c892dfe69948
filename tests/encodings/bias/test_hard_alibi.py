"""Hard ALiBi against a loop over the definition, and its identities."""

import math

import pytest
import torch

from zoo.encodings.bias.hard_alibi import HardALiBi
from zoo.encodings.context import AttentionContext

HEADS, LENGTH = 6, 15


@pytest.mark.parametrize("masked", [0, 1, 4, HEADS])
@pytest.mark.parametrize("causal", [True, False])
def test_head_h_sees_the_last_h_plus_one_tokens(masked, causal, size_of, agree):
    expected = torch.zeros(HEADS, LENGTH, LENGTH)
    for h in range(masked):
        for i in range(LENGTH):
            for j in range(LENGTH):
                if abs(i - j) >= h + 1:
                    expected[h, i, j] = -math.inf
    pos = torch.arange(LENGTH)
    for consecutive in (True, False):
        context = AttentionContext(pos, pos, causal=causal, consecutive=consecutive)
        actual = HardALiBi(size_of(causal=causal), masked=masked).bias_table(context, HEADS)
        agree(actual, expected, encoding="hard_alibi", against="a loop over the definition")


def test_half_of_the_heads_are_masked_by_default(size_of):
    farthest = HardALiBi(size_of(d_model=64, num_heads=16)).farthest
    assert farthest.tolist() == [*range(8), *[math.inf] * 8]
