"""The network over every pair: its gradients, in blocks of pairs, and what a compiler is told of it."""

import pytest
import torch
import torch.nn.functional as F

from zoo.encodings import pair_network as module
from zoo.encodings.pair_network import pair_network

PAIRS, WIDTH, HEADS = 37, 5, 3


def tensors(numbers, offsets, **options):
    shapes = (numbers, PAIRS), (WIDTH, numbers), (WIDTH,), (HEADS, WIDTH), (HEADS,)
    x, weight, offset, out, out_offset = (torch.randn(shape, **options) for shape in shapes)
    return (x, weight, offset, out, out_offset) if offsets else (x, weight, None, out, None)


def plain(x, weight, offset, out, out_offset, slope):
    return F.linear(F.leaky_relu(F.linear(x.T, weight, offset), slope), out, out_offset).T


def network(x, weight, offset, out, out_offset, slope):
    return pair_network(x, (weight, offset), slope, (out, out_offset))


@pytest.mark.parametrize("block", [0, 60, 2**20], ids=["pair by pair", "12 pairs", "all"])
@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("numbers", [1, 4])
def test_it_is_the_network_and_its_gradients(numbers, offsets, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", block)
    given = tensors(numbers, offsets, dtype=torch.float64, requires_grad=True)
    for slope in (0.0, 0.01):
        expected = plain(*given, slope)
        torch.testing.assert_close(network(*given, slope), expected)
        with torch.no_grad():
            torch.testing.assert_close(network(*given, slope), expected)
        assert torch.autograd.gradcheck(lambda *x, slope=slope: network(*x, slope), given)


def test_the_operators_are_what_a_compiler_takes_them_for():
    x, weight, offset, out, out_offset = tensors(4, True, requires_grad=True)
    torch.library.opcheck(torch.ops.zoo.pair_network, (x, weight, offset, out, out_offset, 0.01))
    torch.library.opcheck(torch.ops.zoo.pair_network, (x, weight, None, out, None, 0.0))
