"""GRAPE-M against a loop that turns complex numbers."""

import cmath
import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.contextual.grape_m import GrapeM

B, H, T, D = 2, 6, 13, 8
E = H * D


def products(encoding, q, k, context):
    q, k = encoding.rotate(q, k, context)
    return (q @ k.mT).detach()


@pytest.mark.parametrize("per_head", [False, True])
def test_pairs_turn_by_the_gates_between_key_and_query(per_head, size_of, agree):
    """The gate of the key's token counts, and that of the query's does not; of padding none does."""
    grape = GrapeM(size_of(), per_head=per_head).requires_grad_(False)
    for parameter, std in ((grape.gate.weight, 2.0), (grape.gate.bias, 8.0), (grape.log_factor, 0.3)):
        torch.nn.init.normal_(parameter, std=std)
    x, (q, k) = torch.randn(B, T, E), torch.randn(2, B, H, T, D)
    keep = torch.ones(B, T, dtype=torch.bool)
    keep[1, :3] = False
    expected = torch.zeros(B, H, T, T, dtype=torch.float64)
    for b, h in torch.cartesian_prod(torch.arange(B), torch.arange(H)).tolist():
        row = h if per_head else 0
        logits = (x[b].double() @ grape.gate.weight[row].double() + grape.gate.bias[row]).tolist()
        gates = [float(keep[b, t]) / (1 + math.exp(-logits[t] / 16)) for t in range(T)]
        for i in range(T):
            for j in (j for j in range(i + 1) if keep[b, j]):
                for n in range(D // 2):
                    frequency = 10000 ** (-2 * n / D) * math.exp(grape.log_factor[n])
                    of_q, of_k = (complex(y[n], y[n + D // 2]) for y in (q[b, h, i], k[b, h, j]))
                    turned = of_q.conjugate() * of_k * cmath.exp(-1j * frequency * sum(gates[j:i]))
                    expected[b, h, i, j] += turned.real
    pos = torch.arange(T)
    context = AttentionContext(pos, pos, features=grape.read(x), keep=keep)
    got = products(grape, q, k, context).masked_fill(~context.allowed(), 0.0)
    agree(got, expected.float(), encoding="grape_m", against="a loop that turns complex numbers")


def test_it_starts_as_published(size_of):
    """Gates of sigmoid(softplus^-1(1e-3) / 16), and RoPE's frequencies."""
    grape = GrapeM(size_of())
    gates = grape.read(torch.randn(B, T, E))
    assert gates.shape == (B, T, 1)
    torch.testing.assert_close(gates, torch.full_like(gates, 0.39372))
    assert not grape.log_factor.any()
