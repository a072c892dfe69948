"""BAM against a loop over the formula, its start, and the ends of its exponent."""

import math

import pytest
import torch

from zoo.encodings.bias.alibi import ALiBi
from zoo.encodings.bias.bam import BAM
from zoo.encodings.context import AttentionContext

HEADS, LENGTH = 6, 30
BETA, ALPHA = [0.2, 0.5, 1.0, 1.4, -0.3, 0.0], [-2.0, -0.5, 0.0, -3.0, 0.7, 0.1]
MU = [0.0, 0.3, -0.4, 1.2, -1.0, 0.01]


def table_of(encoding, causal=True, consecutive=True):
    pos = torch.arange(LENGTH)
    return encoding.bias_table(AttentionContext(pos, pos, causal=causal, consecutive=consecutive), HEADS)


@pytest.mark.parametrize("location", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_the_formula_of_the_paper(location, causal, size_of, agree):
    encoding = BAM(size_of(causal=causal), location=location)
    with torch.no_grad():
        for name, numbers in (("beta", BETA), ("alpha", ALPHA), ("mu", MU)):
            if name != "mu" or location:
                getattr(encoding, name).copy_(torch.tensor(numbers))
    expected = torch.zeros(HEADS, LENGTH, LENGTH, dtype=torch.float64)
    for h in range(HEADS):
        c = 2 * math.sinh(MU[h]) if location else 0.0
        for i in range(LENGTH):
            for j in range(LENGTH):
                expected[h, i, j] = -((abs(j - i - c) + 1e-5) ** BETA[h]) * math.exp(ALPHA[h])
    scale = expected.abs().clamp(min=1)
    for consecutive in (True, False):
        actual = table_of(encoding, causal, consecutive)
        agree(
            (actual / scale).float(), (expected / scale).float(),
            encoding="bam", against="a loop over the formula of the paper",
        )  # fmt: skip


@pytest.mark.parametrize("heads", [6, 8])
def test_it_starts_as_alibi(heads, size_of, agree):
    size, pos = size_of(num_heads=heads), torch.arange(LENGTH)
    context = AttentionContext(pos, pos)
    for location in (True, False):
        got = BAM(size, location=location).bias_table(context, heads)
        agree(got, ALiBi(size).bias_table(context, heads), encoding="bam", against="alibi, at the start")


def test_gradients_are_finite_where_the_distance_is_0(size_of):
    encoding = BAM(size_of(causal=False), location=True)
    for beta in (1.0, 0.1, -1.0):
        encoding.zero_grad()
        with torch.no_grad():
            encoding.beta.fill_(beta)
        table = table_of(encoding, causal=False)
        assert table.isfinite().all()
        table.sum().backward()
        assert all(p.grad.isfinite().all() and (p.grad != 0).any() for p in (encoding.beta, encoding.alpha))
        assert encoding.mu.grad.isfinite().all()
