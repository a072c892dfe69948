"""KERPLE against loops over the paper's two kernels, its initial values, and its limits."""

import math

import pytest
import torch

from zoo.encodings.bias.kerple import KERPLE
from zoo.encodings.context import AttentionContext

KERNELS = pytest.mark.parametrize("kernel", ["log", "power"])
HEADS, LENGTH = 6, 40


def table_of(encoding, length=LENGTH, causal=True, consecutive=True):
    pos = torch.arange(length)
    return encoding.bias_table(AttentionContext(pos, pos, causal=causal, consecutive=consecutive), HEADS)


def drawn(kernel, size, r1=None, r2=None):
    """An encoding with the given r1 and r2, through the inverses of softplus and of twice the sigmoid."""
    encoding = KERPLE(size, kernel=kernel)
    with torch.no_grad():
        if r1 is not None:
            encoding.free_r1.copy_(torch.tensor([math.log(math.expm1(r)) for r in r1]))
        if r2 is not None:
            inverse = math.expm1 if kernel == "log" else (lambda r: r / (2 - r))
            encoding.free_r2.copy_(torch.tensor([math.log(inverse(r)) for r in r2]))
    return encoding


@pytest.mark.parametrize(
    ("kernel", "causal"), [("log", True), ("power", False)], ids=["log, decoder", "power, encoder"]
)
def test_the_kernels_of_the_paper(kernel, causal, size_of, agree):
    r1, r2 = [0.02, 0.3, 0.7, 1.1, 1.6, 2.0], [0.05, 0.2, 0.5, 0.9, 1.0, 1.3]
    expected = torch.zeros(HEADS, LENGTH, LENGTH)
    for h in range(HEADS):
        for i in range(LENGTH):
            for j in range(LENGTH):
                far = abs(i - j)
                if kernel == "log":
                    expected[h, i, j] = -r1[h] * math.log(1 + r2[h] * far)
                else:
                    expected[h, i, j] = -r1[h] * far ** r2[h]
    encoding = drawn(kernel, size_of(causal=causal), r1, r2)
    # The power kernel reaches -239 here: a float32 cannot say it to 1e-5.
    scale = expected.abs().clamp(min=1)
    for consecutive in (True, False):
        actual = table_of(encoding, causal=causal, consecutive=consecutive)
        against = f"loop over the {kernel} kernel of the paper"
        agree(actual / scale, expected / scale, encoding="kerple", against=against)


@pytest.mark.parametrize(("kernel", "highest"), [("log", (2, 1)), ("power", (1, 2))])
def test_it_starts_as_published(kernel, highest, size_of):
    encoding = KERPLE(size_of(d_model=40_000, num_heads=20_000), kernel=kernel)
    head = torch.arange(20_000)
    for r, most in zip((encoding.r1(head), encoding.r2(head)), highest, strict=True):
        assert 0.01 - 1e-6 <= r.min() <= 0.0101
        assert 0.999 * most < r.max() <= most + 1e-5
        assert abs(r.mean() - most / 2) < 0.02


@KERNELS
def test_parameters_stay_in_the_domain_of_the_kernel(kernel, size_of):
    """At any value of the free numbers, with a gradient that is not 0."""
    encoding = KERPLE(size_of(), kernel=kernel)
    head = torch.arange(HEADS)
    for free in (-8.0, 8.0):
        with torch.no_grad():
            encoding.free_r1.fill_(free)
            encoding.free_r2.fill_(free)
        assert (encoding.r1(head) > 0).all() and (encoding.r2(head) > 0).all()
        if kernel == "power":
            assert (encoding.r2(head) < 2).all()
        encoding.zero_grad()
        table_of(encoding, 4).sum().backward()
        assert all(p.grad.isfinite().all() and (p.grad != 0).all() for p in encoding.parameters())
