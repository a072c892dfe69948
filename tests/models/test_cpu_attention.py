"""Attention on a CPU equals plain operations, forward and backward, with a cache, and in every precision."""

import pytest
import torch
import torch.nn.functional as F

from zoo.models.kernels import blocked_attention, cpu_attention

B, H, D, V = 2, 3, 8, 6
# Queries, keys, row of the first query; None where each sees all keys. The last block has a single query.
LAYOUTS = {"square": (33, 33, 0), "cached": (33, 50, 17), "open": (33, 33, None), "across": (33, 37, None)}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks of 16 queries."""
    monkeypatch.setattr(blocked_attention, "MOST_ELEMENTS", 0)


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


def same(actual, expected, what):
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12, msg=lambda text: f"{what}: {text}")


def test_of_width_zero_the_bias_alone_decides():
    (q, k, v, bias), visible, _ = inputs("open", (1, H, 33), torch.float64)
    visible[3] = False
    weights = bias.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num(0.0)
    with torch.no_grad():
        masked = bias.masked_fill(~visible, -torch.inf)
        out = cpu_attention.attend(q[..., :0], k[..., :0], v, masked, 0.3, None)
    same([out], [(weights @ v).detach()], "width 0")


def test_autocast_computes_in_bf16():
    tensors, *_ = inputs("open", (1, H, 33), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = cpu_attention.attend(*tensors, 0.3, None)
    assert out.dtype == torch.bfloat16
    assert [x.dtype for x in torch.autograd.grad(out.sum(), tensors)] == 4 * [torch.float32]


def test_beside_bf16_a_bias_keeps_its_digits():
    """At 1000 bf16 knows every eighth number only."""
    (q, k, v, _), visible, first = inputs("square", (1, 1, 1), torch.bfloat16)
    bias = (1000 + torch.arange(33) / 33).view(1, 1, 1, -1).requires_grad_()
    got = ours(q, k, v, bias, visible, first, folded=False)
    for one, other in zip(got, plain(q, k, v, bias, visible), strict=True):
        assert (one - other).norm() / other.norm() < 0.02


@pytest.mark.parametrize("precision", ["none", "tf32"])
def test_logits_of_bf16_keep_the_digits_of_float32(precision, request):
    """In bf16 a logit of 2000 would be rounded by up to 4."""
    products = torch.backends.mkldnn.matmul
    request.addfinalizer(lambda before=products.fp32_precision: setattr(products, "fp32_precision", before))
    products.fp32_precision = precision
    q, k = (30 * torch.randn(1, 2, 65, 32, generator=torch.Generator().manual_seed(i)) for i in range(2))
    q, k, each_key = q.bfloat16(), k.bfloat16(), torch.eye(65).bfloat16().expand(1, 2, 65, 65)
    weights = cpu_attention.attend(q, k, each_key, None, 0.05, first=0)
    logits = (0.05 * q.double() @ k.double().mT).masked_fill(~torch.ones(65, 65).bool().tril(), -torch.inf)
    torch.testing.assert_close(weights.double(), logits.softmax(-1), rtol=0.01, atol=1e-3)
    assert products.fp32_precision == precision


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kept_weights_are_those_that_would_be_computed_again(dtype, monkeypatch):
    for layout, (queries, _, first) in LAYOUTS.items():
        tensors, visible, _ = inputs(layout, (1, H, queries), dtype)
        both, sizes = [], []
        for length in (0, 16):
            monkeypatch.setattr(blocked_attention, "KEPT_LENGTH", length)
            with torch.autograd.graph.saved_tensors_hooks(
                lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x
            ):
                both.append(ours(*tensors, visible, first))
        assert all(map(torch.equal, *both)), layout
        assert len(set(sizes)) > 1 and max(sizes) >= B * H * visible.sum() > sizes[0], layout


def test_compiled_it_is_the_same():
    tensors, *_ = inputs("open", (1, H, 33), torch.float32)

    def loss(*x):
        return cpu_attention.attend(*x, 0.3, None).square().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    pairs = [torch.autograd.grad(function(*tensors), tensors) for function in (compiled, loss)]
    torch.testing.assert_close(*pairs)
