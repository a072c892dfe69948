"""Small queries, keys and values under every kind of mask, for comparison with attention written by hand."""

import torch

from zoo.encodings.base import Span

B, H, D = 2, 4, 4

MASKS = {
    "open": {"causal": False},
    "causal": {},
    "causal window": {"window": 3},
    "window": {"causal": False, "window": 3},
    "left padding": {"padded": 4},
    "left padding, open": {"padded": 4, "causal": False},
    "all padding": {"padded": 9},
    "cached": {"first": 5},
    "cached, padded, window": {"first": 5, "padded": 3, "window": 4},
    "one query": {"first": 8},
}


def spanned(keys=9, first=0, padded=0, causal=True, window=None):
    """`keys` tokens of which those from `first` on are queries; the second sequence begins with padding."""
    keep, pos = None, torch.arange(keys)
    if padded:
        keep = pos >= torch.tensor([[0], [padded]])
        pos = (keep.long().cumsum(1) - 1).clamp(min=0)
    consecutive = keep is None
    return Span(pos[..., first:], pos, first, causal, window, keep, consecutive)


def keys_seen(span, b, i):
    """The keys that query i of sequence b sees, by the definition of every mask."""
    row = span.first + i
    return [
        j
        for j in range(span.num_keys)
        if (not span.causal or j <= row)
        and (span.window is None or abs(row - j) < span.window)
        and (span.keep is None or span.keep[b, j])
    ]


def heads(queries, keys, dtype=torch.float64):
    """Queries, keys and values; the width of the values is their own."""
    shapes = (B, H, queries, D), (B, H, keys, D), (B, H, keys, D + 2)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def gradients(out, inputs):
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    return torch.autograd.grad((out * cotangent).sum(), inputs, retain_graph=True, allow_unused=True)
