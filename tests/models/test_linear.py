"""The product of few rows equals that of `F.linear`."""

import pytest
import torch
import torch.nn.functional as F

from zoo.models.linear import Linear, linear

# Output and input widths, and the shape of the rows: one and several, around the most rows of each kind.
SHAPES = [
    ((6, 4), ()),
    ((7, 4), (1, 1)),
    ((6, 4), (17, 1)),
    ((7, 4), (4, 4)),
    ((4, 6), (2, 2)),
    ((4, 6), (5,)),
    ((1, 5), (1,)),
    ((768, 256), (1, 1)),
    ((257, 1024), (3,)),
    ((256, 1024), (1, 40)),
]


def test_without_gradients_it_is_the_same_to_rounding():
    for (outputs, inputs), shape in SHAPES:
        generator = torch.Generator().manual_seed(outputs * inputs)
        x, weight, bias = (
            torch.randn(*size, generator=generator)
            for size in ((*shape, 2 * inputs), (outputs, inputs), (outputs,))
        )
        with torch.no_grad():
            for rows in (
                x[..., :inputs],
                x[..., ::2],
                x[..., :inputs].transpose(0, -2) if shape[1:] else x[..., 1::2],
            ):
                for offset in (None, bias):
                    expected = F.linear(
                        rows.double(), weight.double(), None if offset is None else bias.double()
                    )
                    found = linear(rows, weight, offset)
                    assert found.shape == expected.shape and found.dtype == torch.float32
                    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * inputs**0.5)
    assert linear(torch.ones(0, 4), torch.ones(6, 4)).shape == (0, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_with_gradients_in_another_precision_and_of_many_rows_it_is_that_of_torch(dtype):
    layer, x = Linear(63, 65).to(dtype), torch.randn(2, 1, 63, dtype=dtype)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    with torch.no_grad():
        many = torch.randn(17, 63, dtype=dtype)
        assert torch.equal(layer(many), F.linear(many, layer.weight, layer.bias))
        few = layer(x)
        torch.testing.assert_close(few, F.linear(x, layer.weight, layer.bias))
        assert torch.equal(few, F.linear(x, layer.weight, layer.bias)) or dtype == torch.float32
