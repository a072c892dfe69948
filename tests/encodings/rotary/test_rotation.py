"""The turn of pairs: its gradient, and that it is the same with and without one for the angles."""

import pytest
import torch

from zoo.encodings.rotary.rotation import angles, frequencies, turn


@pytest.mark.parametrize(("layout", "width", "batch"), [
    ("half", 8, False), ("half", 4, True), ("interleaved", 8, True), ("interleaved", 4, False),
])  # fmt: skip
def test_the_gradient_is_the_turn_back(layout, width, batch):
    pos = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 30, 31]]) if batch else torch.arange(5)
    angle = angles(pos, frequencies(width, 100.0)).double()
    # Scaled, as by an attention factor.
    cos, sin = 1.3 * angle.cos(), 1.3 * angle.sin()
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: turn(x, cos, sin, layout), x)
    assert torch.autograd.gradgradcheck(lambda x: turn(x, cos, sin, layout), x)
    by_autograd = turn(x, cos.clone().requires_grad_(), sin, layout)
    torch.testing.assert_close(turn(x, cos, sin, layout), by_autograd)
    given = torch.randn_like(by_autograd)
    of_x = [torch.autograd.grad(y, x, given)[0] for y in (turn(x, cos, sin, layout), by_autograd)]
    torch.testing.assert_close(*of_x)


def test_low_precision_is_rounded_once():
    angle = angles(torch.arange(300), frequencies(8, 100.0))
    x = torch.randn(1, 1, 300, 8).bfloat16()
    exact = turn(x.double(), angle.cos().double(), angle.sin().double())
    # No further away than the nearest of bf16, whose significands have 8 bits.
    turned = turn(x, angle.cos(), angle.sin()).double()
    torch.testing.assert_close(turned, exact, rtol=1.001 * 2**-8, atol=1e-6)
