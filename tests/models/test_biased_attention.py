"""Attention with a bias that has a gradient is that of plain operations, in any block size and precision."""

import pytest
import torch
import torch.nn.functional as F

from zoo.models import biased_attention

B, H, D = 2, 3, 8
# Queries, keys, row of the first query; None where each sees all keys.
LAYOUTS = {"square": (37, 37, 0), "cached": (20, 37, 17), "open": (37, 37, None), "across": (20, 37, None)}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(biased_attention, "BLOCK_ELEMENTS", 0)


def inputs(layout, shape, dtype):
    queries, keys, first = LAYOUTS[layout]
    generator = torch.Generator().manual_seed(0)
    sizes = [(B, H, queries, D), (B, H, keys, D), (B, H, keys, D), (*shape, queries, keys)]
    tensors = [torch.randn(size, generator=generator, dtype=dtype, requires_grad=True) for size in sizes]
    visible = torch.ones(queries, keys, dtype=torch.bool)
    return tensors, visible if first is None else visible.tril(first), first


def outputs(attend, q, k, v, bias, visible):
    out = attend(q, k, v, bias.masked_fill(~visible, -torch.inf))
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return out, *torch.autograd.grad((out * weights).sum(), (q, k, v, bias))


def both(tensors, visible, first):
    ours = outputs(
        lambda q, k, v, bias: biased_attention.attend(q, k, v, bias, 0.3, first), *tensors, visible
    )
    plain = outputs(
        lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.3),
        *(x.detach().double().requires_grad_() for x in tensors),
        visible,
    )
    return zip(ours, plain, strict=True)


@pytest.mark.parametrize("shape", [(1, H), (B, H), (B, 1), (1, 1)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_output_and_gradients(layout, shape):
    for one, other in both(*inputs(layout, shape, torch.float64)):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_in_low_precision_errors_are_those_of_rounding(dtype, error):
    for one, other in both(*inputs("square", (1, H), dtype)):
        assert (one - other).norm() / other.norm() < error


def test_autocast_computes_in_bf16():
    (q, k, v, bias), _, _ = inputs("open", (1, H), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = biased_attention.attend(q, k, v, bias, 0.3, None)
    assert out.dtype == torch.bfloat16
    assert [x.dtype for x in torch.autograd.grad(out.sum(), (q, k, v, bias))] == 4 * [torch.float32]


def test_a_query_that_sees_nothing_gets_zeros():
    tensors, visible, _ = inputs("open", (1, H), torch.float64)
    visible[3] = False
    out, dq, *others = outputs(
        lambda q, k, v, bias: biased_attention.attend(q, k, v, bias, 0.3, None), *tensors, visible
    )
    assert not out[:, :, 3].any() and not dq[:, :, 3].any()
    assert all(x.isfinite().all() for x in (dq, *others))
