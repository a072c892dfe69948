"""The product of few rows is that of `F.linear`, whatever way it takes."""

import pytest
import torch
import torch.nn.functional as F

from zoo.models import linear as module
from zoo.models.linear import Linear, linear

SIZES = [(6, 4), (7, 4), (4, 6), (1, 5), (768, 256), (256, 1024)]


@pytest.mark.parametrize("outputs, inputs", SIZES)
@pytest.mark.parametrize("shape", [(1,), (1, 1), (2, 1), (3, 2), (4, 4), (17, 1), (1, 40), ()], ids=str)
def test_without_gradients_it_is_the_same_to_rounding(outputs, inputs, shape):
    generator = torch.Generator().manual_seed(outputs * inputs)
    x, weight, bias = (
        torch.randn(*size, generator=generator) for size in ((*shape, inputs), (outputs, inputs), (outputs,))
    )
    with torch.no_grad():
        for given in (x, x.transpose(0, -2) if len(shape) > 1 else x, x[..., ::2].repeat_interleave(2, -1)):
            given = given[..., :inputs]
            for offset in (None, bias):
                expected = F.linear(
                    given.double(), weight.double(), None if offset is None else bias.double()
                )
                found = linear(given, weight, offset)
                assert found.shape == expected.shape and found.dtype == torch.float32
                torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * inputs**0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_with_gradients_and_in_another_precision_it_is_torchs(dtype):
    layer, x = Linear(6, 8).to(dtype), torch.randn(2, 1, 6, dtype=dtype)
    expected = F.linear(x, layer.weight, layer.bias)
    assert torch.equal(layer(x), expected)
    with torch.no_grad():
        few = layer(x)
        torch.testing.assert_close(few, expected)
        assert torch.equal(few, expected) or dtype == torch.float32


def test_many_rows_take_torchs_way(monkeypatch):
    monkeypatch.setattr(module.torch, "bmm", None)
    monkeypatch.setattr(torch.Tensor, "__matmul__", None)
    with torch.no_grad():
        assert linear(torch.ones(17, 4), torch.ones(6, 4)).shape == (17, 6)
        assert linear(torch.ones(0, 4), torch.ones(6, 4)).shape == (0, 6)
        with pytest.raises(TypeError):
            linear(torch.ones(1, 4), torch.ones(6, 4))
