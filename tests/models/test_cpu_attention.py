"""Attention on a CPU is that of plain operations, forward and backward, in any block size and precision."""

import pytest
import torch
import torch.nn.functional as F

from zoo.models import blocked_attention, cpu_attention

B, H, D, V = 2, 3, 8, 6
# Queries, keys, row of the first query; None where each sees all keys.
LAYOUTS = {"square": (37, 37, 0), "cached": (20, 37, 17), "open": (37, 37, None), "across": (20, 37, None)}


@pytest.fixture(autouse=True, params=[0, blocked_attention.KEPT_LENGTH], ids=["computed again", "kept"])
def small_blocks(request, monkeypatch):
    """Several blocks, whose weights the backward pass computes again or finds kept."""
    monkeypatch.setattr(blocked_attention, "MOST_ELEMENTS", 0)
    monkeypatch.setattr(blocked_attention, "KEPT_LENGTH", request.param)


@pytest.fixture(autouse=True, params=[0, blocked_attention.BLOCK_ELEMENTS], ids=["in turn", "at once"])
def groups(request, monkeypatch):
    """Each sequence by itself, or all together."""
    monkeypatch.setattr(blocked_attention, "BLOCK_ELEMENTS", request.param)


def inputs(layout, shape, dtype):
    """q, k, v and a bias [*shape,S]; which keys each query sees; the row of the first query."""
    queries, keys, first = LAYOUTS[layout]
    generator = torch.Generator().manual_seed(0)
    sizes = [(B, H, queries, D), (B, H, keys, D), (B, H, keys, V), (*shape, keys)]
    tensors = [torch.randn(size, generator=generator, dtype=dtype, requires_grad=True) for size in sizes]
    visible = torch.ones(queries, keys, dtype=torch.bool)
    return tensors, visible if first is None else visible.tril(first), first


def gradients(out, inputs):
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return torch.autograd.grad((out * weights).sum(), inputs)


def plain(q, k, v, bias, visible):
    q, k, v, bias = inputs = [x.detach().double().requires_grad_() for x in (q, k, v, bias)]
    mask = bias.expand(B, H, *visible.shape).masked_fill(~visible, -torch.inf)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)
    return out, *gradients(out, inputs)


def ours(q, k, v, bias, visible, first, folded=True):
    inputs = q, k, v, bias
    if folded:
        bias = bias.masked_fill(~visible, -torch.inf)
    out = cpu_attention.attend(q, k, v, bias, 0.3, first)
    return out, *gradients(out, inputs)


@pytest.mark.parametrize("shape", [(1, H, "T"), (B, H, "T"), (B, 1, "T"), (1, 1, "T")])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_output_and_gradients(layout, shape):
    (q, k, v, bias), visible, first = inputs(layout, (*shape[:2], LAYOUTS[layout][0]), torch.float64)
    for one, other in zip(ours(q, k, v, bias, visible, first), plain(q, k, v, bias, visible), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, H, 1), (B, H, 1), (1, 1, 1), (1, H, 37), (B, H, 37)])
@pytest.mark.parametrize("layout", ["square", "open"])
def test_a_bias_without_the_mask_and_one_of_each_key(layout, shape):
    (q, k, v, bias), visible, first = inputs(layout, shape, torch.float64)
    got = ours(q, k, v, bias, visible, first, folded=False)
    for one, other in zip(got, plain(q, k, v, bias, visible), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("heads", [1, H])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bias_by_distance(layout, heads):
    queries, keys, _ = LAYOUTS[layout]
    (q, k, v, line), visible, first = inputs(layout, (heads,), torch.float64)
    line = torch.randn(heads, queries + keys - 1).double().requires_grad_()
    table = line[:, torch.arange(keys) - torch.arange(queries)[:, None] + queries - 1]
    expected, *others = plain(q, k, v, table[None], visible)
    out = cpu_attention.attend(q, k, v, line, 0.3, first, by_distance=True)
    dq, dk, dv, dline = gradients(out, (q, k, v, line))
    others[-1] = torch.autograd.grad(table, line, others[-1][0])[0]
    for one, other in zip((out, dq, dk, dv, dline), (expected, *others), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    with torch.no_grad():
        later = torch.zeros(queries + keys - 1, dtype=torch.bool)
        if first is not None:
            later[queries + first :] = True
        masked = line.masked_fill(later, -torch.inf)
        out = cpu_attention.attend(q, k, v, masked, 0.3, first, by_distance=True)
    torch.testing.assert_close(out, expected.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", ["square", "open"])
def test_without_a_bias(layout):
    tensors, visible, first = inputs(layout, (1, 1, 1), torch.float64)
    out = cpu_attention.attend(*tensors[:3], None, 0.3, first)
    expected = plain(*tensors[:3], torch.zeros(1, 1, 1, 37), visible)
    for one, other in zip((out, *gradients(out, tensors[:3])), expected[:4], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_mask_alone(layout):
    tensors, visible, first = inputs(layout, (1, 1, 1), torch.float64)
    visible = visible & (torch.arange(37) % 5 != 3)
    out = cpu_attention.attend(*tensors[:3], visible, 0.3, first)
    expected = plain(*tensors[:3], torch.zeros(1, 1, 1, 37), visible)
    for one, other in zip((out, *gradients(out, tensors[:3])), expected[:4], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_in_low_precision_errors_are_those_of_rounding(dtype, error):
    (q, k, v, bias), visible, first = inputs("square", (1, H, 37), dtype)
    for one, other in zip(ours(q, k, v, bias, visible, first), plain(q, k, v, bias, visible), strict=True):
        assert (one - other).norm() / other.norm() < error


def test_autocast_computes_in_bf16():
    tensors, *_ = inputs("open", (1, H, 37), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = cpu_attention.attend(*tensors, 0.3, None)
    assert out.dtype == torch.bfloat16
    assert [x.dtype for x in torch.autograd.grad(out.sum(), tensors)] == 4 * [torch.float32]


def test_beside_bf16_a_bias_keeps_its_digits():
    """At 1000 bf16 knows every eighth number only."""
    (q, k, v, _), visible, first = inputs("square", (1, 1, 1), torch.bfloat16)
    bias = (1000 + torch.arange(37) / 37).view(1, 1, 1, -1).requires_grad_()
    got = ours(q, k, v, bias, visible, first, folded=False)
    for one, other in zip(got, plain(q, k, v, bias, visible), strict=True):
        assert (one - other).norm() / other.norm() < 0.02


@pytest.mark.parametrize("setting", ["none", "tf32"])
def test_logits_of_bf16_keep_the_digits_of_float32(setting, request):
    products = torch.backends.mkldnn.matmul
    request.addfinalizer(lambda before=products.fp32_precision: setattr(products, "fp32_precision", before))
    products.fp32_precision = setting
    q, k = (30 * torch.randn(1, 2, 64, 32, generator=torch.Generator().manual_seed(i)) for i in range(2))
    q, k = q.bfloat16(), k.bfloat16()
    # In bf16 a logit of 2000 would be rounded by up to 4.
    blocks = blocked_attention._Blocks(q, k, None, 0.05, first=0)
    found = [weights.double().clone() for *_, weights in blocks]
    logits = (0.05 * q.double() @ k.double().mT).masked_fill(~torch.ones(64, 64).bool().tril(), -torch.inf)
    expected = logits.softmax(-1).flatten(0, 1).split([w.shape[1] for w in found], 1)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other[..., : one.shape[-1]], rtol=0.01, atol=1e-3)
    assert products.fp32_precision == setting


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_kept_is_what_would_be_computed_again(layout, dtype, monkeypatch):
    tensors, visible, first = inputs(layout, (1, H, LAYOUTS[layout][0]), dtype)
    both, sizes = [], []
    for length in (0, 16):
        monkeypatch.setattr(blocked_attention, "KEPT_LENGTH", length)
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            both.append(ours(*tensors, visible, first))
    assert all(map(torch.equal, *both))
    assert len(set(sizes)) > 1 and max(sizes) >= B * H * visible.sum() > sizes[0]


def test_a_query_that_sees_nothing_gets_zeros():
    (q, k, v, bias), visible, _ = inputs("open", (1, H, 37), torch.float64)
    visible[3] = False
    out, dq, *others = ours(q, k, v, bias, visible, None)
    assert not out[:, :, 3].any() and not dq[:, :, 3].any()
    assert all(x.isfinite().all() for x in (dq, *others))


def test_the_gradients_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    sizes = [(1, 2, 20, 2), (1, 2, 20, 2), (1, 2, 20, 3), (1, 2, 20, 20)]
    tensors = [torch.randn(size, generator=generator).double().requires_grad_() for size in sizes]
    assert torch.autograd.gradcheck(lambda *x: cpu_attention.attend(*x, 0.3, None), tensors)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_gradients_it_is_the_same(layout):
    (q, k, v, bias), visible, first = inputs(layout, (1, H, LAYOUTS[layout][0]), torch.float64)
    expected, *_ = ours(q, k, v, bias, visible, first)
    with torch.no_grad():
        out = cpu_attention.attend(q, k, v, bias.masked_fill(~visible, -torch.inf), 0.3, first)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


def test_a_compiler_leaves_it_as_it_is():
    tensors, *_ = inputs("open", (1, H, 37), torch.float32)

    def loss(*x):
        return cpu_attention.attend(*x, 0.3, None).square().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    pairs = [torch.autograd.grad(function(*tensors), tensors) for function in (compiled, loss)]
    torch.testing.assert_close(*pairs)
