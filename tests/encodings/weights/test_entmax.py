"""Sparse weights against a bisection in float64 and the projection on the simplex."""

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.weights.entmax import Entmax

POS = torch.arange(13)
CONTEXT = AttentionContext(POS, POS)
ALPHAS = (1.1, 1.5, 1.75, 2.0)


def scores(*shape, scale=3.0):
    return scale * torch.randn(*shape)


def bisected(row, alpha):
    """The weights of a row, in float64: tau by 100 halvings."""
    z = (alpha - 1) * row.double()
    low, high = z.max() - 1, z.max()
    for _ in range(100):
        tau = (low + high) / 2
        total = (z - tau).clamp(min=0).pow(1 / (alpha - 1)).sum()
        low, high = (tau, high) if total >= 1 else (low, tau)
    return (z - low).clamp(min=0).pow(1 / (alpha - 1))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_bisection_in_float64(alpha, size_of, agree):
    """Each query over the keys that it sees; masked keys have no weight."""
    logits = scores(2, 6, 13, 13).masked_fill(~CONTEXT.allowed(), -torch.inf)
    expected = torch.zeros(logits.shape, dtype=torch.float64)
    for *at, i in torch.cartesian_prod(*map(torch.arange, (2, 6, 13))).tolist():
        expected[(*at, i, slice(i + 1))] = bisected(logits[(*at, i, slice(i + 1))], alpha)
    got = Entmax(size_of(), alpha=alpha).weights(logits, CONTEXT)
    agree(got, expected.float(), encoding="entmax", against="a bisection in float64")
    assert (got == 0).sum() > (expected.numel() * 6 // 13)  # more than the mask hides


def test_sparsemax_is_the_projection_on_the_simplex(size_of, agree):
    """Martins and Astudillo 2016: tau from the sorted scores."""
    logits = scores(3, 6, 5, 40, scale=1.0)
    ordered = logits.double().sort(-1, descending=True).values
    count = torch.arange(1, 41)
    sums = ordered.cumsum(-1) - 1
    size = (count * ordered > sums).sum(-1, keepdim=True)
    expected = (logits - sums.gather(-1, size - 1) / size).clamp(min=0)
    got = Entmax(size_of(), alpha=2.0).weights(logits, CONTEXT)
    agree(got, expected.float(), encoding="entmax", against="sparsemax by sorting, alpha = 2")


@pytest.mark.parametrize("alpha", ALPHAS)
def test_its_gradient_is_that_of_differences(alpha, size_of):
    encoding = Entmax(size_of(), alpha=alpha)
    logits = scores(1, 2, 3, 7, scale=1.0).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: encoding.weights(x, CONTEXT), logits)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_rows_of_many_keys_sum_to_one(alpha, size_of):
    """Equal and random scores, most of them masked in some rows; also where no step looks at the sums."""
    encoding = Entmax(size_of(), alpha=alpha)
    logits = torch.stack([torch.zeros(65536), scores(65536), scores(65536, scale=100.0), scores(65536)])
    logits[3, 7:] = -torch.inf
    for weights in (encoding.weights(logits, CONTEXT), encoding.weights(logits.double(), CONTEXT)):
        torch.testing.assert_close(weights.sum(-1), torch.ones(4).to(weights), rtol=0, atol=1e-5)
        assert not weights[3, 7:].any()
