"""GRAPE-A against a loop over its formula."""

import math

import pytest
import torch

from zoo.encodings.bias.alibi import official_slopes
from zoo.encodings.context import AttentionContext
from zoo.encodings.contextual.grape_a import GrapeA

B, H, T, D = 2, 6, 13, 8


def softplus(value):
    return math.log1p(math.exp(value))


@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
def test_the_slopes_that_query_and_key_choose(causal, size_of, agree):
    grape = GrapeA(size_of(causal=causal))
    torch.nn.init.normal_(grape.omega)
    q, k, pos = torch.randn(B, H, T, D), torch.randn(B, H, T, D), torch.randint(100, (B, T)).sort().values
    expected = torch.zeros(B, H, T, T, dtype=torch.float64)
    v, u = (p.double() / p.double().norm(dim=-1, keepdim=True) for p in (grape.v, grape.u))
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (B, H, T, T))).tolist():
        gates = softplus((v[h] @ q[b, h, i].double()).item() / math.sqrt(D))
        gates += softplus((u[h] @ k[b, h, j].double()).item() / math.sqrt(D))
        slope = official_slopes(H)[h] * softplus(grape.omega[h].item())
        expected[b, h, i, j] = -abs(pos[b, i] - pos[b, j]) * slope * gates
    got = grape.score(q, k, AttentionContext(pos, pos, causal=causal)).detach()
    agree(got, expected.float(), encoding="grape_a", against="a loop over the formula", atol=3e-5)


def test_it_starts_as_published(size_of):
    grape = GrapeA(size_of(d_model=6 * 64))
    torch.testing.assert_close(torch.nn.functional.softplus(grape.omega), torch.ones(H))
    assert all(p.std().item() == pytest.approx(1 / 8, rel=0.2) for p in (grape.u, grape.v))
