"""Small queries, keys and values under every kind of mask, for comparison with attention written by hand."""

import torch

from zoo.encodings.context import AttentionContext

B, H, D = 2, 4, 4

MASKS = {
    "open": {"causal": False},
    "causal": {},
    "causal window": {"window": 3},
    "window": {"causal": False, "window": 3},
    "left padding": {"padded": 4},
    "left padding, open": {"padded": 4, "causal": False},
    "all padding": {"padded": 9},
    "cached": {"query_offset": 5},
    "cached, padded, window": {"query_offset": 5, "padded": 3, "window": 4},
    "one query": {"query_offset": 8},
}


def context_with(keys=9, query_offset=0, padded=0, causal=True, window=None):
    """`keys` tokens of which those from `query_offset` on are queries; the second begins with padding."""
    keep, pos = None, torch.arange(keys)
    if padded:
        keep = pos >= torch.tensor([[0], [padded]])
        pos = (keep.long().cumsum(1) - 1).clamp(min=0)
    consecutive = keep is None
    return AttentionContext(pos[..., query_offset:], pos, query_offset, causal, window, keep, consecutive)


def visible(context):
    """[B,1,T,S]: whether a query of a sequence sees a key, by the definition of every mask."""

    def sees(b, row, key):
        return (
            (not context.causal or key <= row)
            and (context.window is None or abs(row - key) < context.window)
            and (context.keep is None or bool(context.keep[b, key]))
        )

    rows, keys = range(context.query_offset, context.num_keys), range(context.num_keys)
    return torch.tensor([[[[sees(b, i, j) for j in keys] for i in rows]] for b in range(B)])


def softmax(logits, seen):
    """Weights over the keys that are seen; zeros for a query that sees no key or only logits of -inf."""
    logits = logits.masked_fill(~seen, -torch.inf)
    largest = logits.detach().amax(-1, keepdim=True)
    powers = (logits - largest.masked_fill(largest == -torch.inf, 0.0)).exp()
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-300)


def heads(queries, keys, dtype=torch.float64):
    """Queries, keys and values; the width of the values is their own."""
    shapes = (B, H, queries, D), (B, H, keys, D), (B, H, keys, D + 2)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def gradients(out, inputs):
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    return torch.autograd.grad((out * cotangent).sum(), inputs, retain_graph=True, allow_unused=True)
