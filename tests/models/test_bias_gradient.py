"""The gradient of a learned bias by the kernel for GPUs.

On a CPU it needs Triton's interpreter: `pip install triton`, TRITON_INTERPRET=1 and NumPy below 2.3.
"""

import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton", reason="Triton comes with PyTorch for a GPU")
if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no GPU", allow_module_level=True)


# Batch, heads, queries, keys, widths of keys and values, groups of the bias and of the mask.
@pytest.mark.parametrize("sizes", [
    (2, 3, 70, 70, 16, 16, 1, 1), (3, 2, 65, 130, 24, 40, 3, 1), (2, 2, 33, 33, 64, 64, 1, 2),
    (2, 2, 64, 64, 128, 128, 2, 2), (1, 1, 5, 5, 16, 16, 1, 1),
])  # fmt: skip
@pytest.mark.parametrize("ahead", [0, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_it_is_that_of_plain_attention(sizes, ahead, dtype):
    from zoo.models.kernels.bias_gradient import with_gradient

    batch, heads, queries, keys, width, value_width, groups, masks = sizes
    ahead += keys - queries
    q, k, v, dout = (
        torch.randn(batch, heads, *shape, device=DEVICE).to(dtype)
        for shape in ((queries, width), (keys, width), (keys, value_width), (queries, value_width))
    )
    bias = torch.randn(groups, heads, queries, keys, device=DEVICE, requires_grad=True)
    seen = (torch.rand(masks, queries, keys, device=DEVICE) < 0.7).tril(ahead)
    seen[:, 3] = False  # a query that sees no key
    logits = (q.double() @ k.double().mT * 0.3 + bias.double()).masked_fill(~seen[:, None], -torch.inf)
    blind = ~seen.any(-1)[:, None, :, None]
    weights = logits.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    (exact,) = torch.autograd.grad((weights @ v.double() * dout.double()).sum(), bias)
    out = torch.zeros_like(dout, requires_grad=True)
    with_gradient(out, bias, q, k, v, seen, ahead, 0.3).backward(dout)
    assert torch.equal(out.grad, dout)
    torch.testing.assert_close(bias.grad, exact, rtol=1e-4, atol=1e-5)
