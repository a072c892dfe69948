"""Turning pairs of a vector's dimensions by angles; the base of all rotary encodings."""

from __future__ import annotations

import torch
from torch import Tensor


def frequencies(width: int, base: float | Tensor) -> Tensor:
    """base^(-2k/R) for the pairs k of R = `width` dimensions, in radians a token: [R/2], float32.

    A base [...,1] gives [...,R/2].
    """
    device = base.device if isinstance(base, Tensor) else None
    exponent = torch.arange(0, width, 2, dtype=torch.float32, device=device) / width
    # In the order in which published models compute it: a last bit, times position 100,000, is an angle.
    return 1.0 / base**exponent


def angles(pos: Tensor, frequency: Tensor) -> Tensor:
    """Position times frequency, [T,R/2] or, where either has a row for each sequence, [B,1,T,R/2]: float32.

    pos is [T] or [B,T], frequency [R/2] or [B,1,R/2].
    """
    # Autocast would compute the product in bf16, whose integers are exact only to 256.
    with torch.autocast(pos.device.type, enabled=False):
        angle = pos.float()[..., None] * frequency
    return angle if angle.dim() == 2 else angle[:, None]


def turn(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "half") -> Tensor:
    """Turns the first R dimensions of x [B,H,T,D], pair by pair; cos and sin are [T,R/2] or [B,1,T,R/2].

    Pairs are (k, k + R/2) in layout `half`, (2k, 2k+1) in `interleaved`. Computed in the precision of the
    angles, rounded once to that of x.
    """
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if layout == "half":
        a, b = turned.chunk(2, -1)
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    else:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    turned = turned.to(x.dtype)
    return turned if rest.shape[-1] == 0 else torch.cat((turned, rest), -1)
