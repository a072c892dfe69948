"""Stick-breaking weights against a loop and the published sum."""

import pytest
import torch
import torch.nn.functional as F

from zoo.encodings.context import AttentionContext
from zoo.encodings.weights.stick_breaking import StickBreaking
from zoo.models.scores import apply_mask

B, H, T = 2, 6, 13
POS = torch.arange(T)


@pytest.fixture
def stick(size_of):
    return lambda **options: StickBreaking(size_of(), **options)


def masked(scale=2.0, **context):
    context = AttentionContext(POS, POS, **context)
    return apply_mask(scale * torch.randn(B, H, T, T), context), context


@pytest.mark.parametrize("remainder", [False, True])
def test_a_loop_over_the_formula(remainder, stick, agree):
    """Backwards from the query over the keys that it sees, under a window and padding."""
    keep = torch.arange(T) >= torch.tensor([[0], [4]])
    logits, context = masked(window=6, keep=keep)
    expected = torch.zeros(B, H, T, T, dtype=torch.float64)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
        left = 1.0
        for j in range(i - 1, -1, -1):
            if logits[b, h, i, j] > -torch.inf:
                share = logits[b, h, i, j].double().sigmoid()
                expected[b, h, i, j] = left * share
                left = left * (1 - share)
        if remainder and keep[b, i]:
            expected[b, h, i, i] = left
    got = stick(remainder=remainder).weights(logits, context)
    agree(got, expected.float(), encoding="stick_breaking", against="a loop over the formula")


def test_the_published_sum(stick, agree):
    """sb_ref.py: masked entries are set after the logarithm, and a triangle of ones sums over the keys."""
    logits, context = masked()
    hidden, after = torch.ones(T, T).triu().bool(), torch.ones(T, T).tril(-1)
    log_z = F.logsigmoid(logits).masked_fill(hidden, -1e5)
    log_beta = F.logsigmoid(-logits).masked_fill(hidden, 0)
    expected = (log_z + log_beta @ after).exp()
    got = stick().weights(logits, context)
    agree(got, expected, encoding="stick_breaking", against="the sum of the published code")
    assert not got[:, :, 0].any()
