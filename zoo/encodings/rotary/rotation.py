"""Turning pairs of a vector's dimensions by angles; the base of all rotary encodings."""

from __future__ import annotations

from typing import Any

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

    pos is [T] or [B,T], frequency [R/2], [B,1,R/2] or [B,T,R/2].
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
    if torch.compiler.is_compiling() or cos.requires_grad or sin.requires_grad:
        # A compiler fuses plain operations itself.
        (a, b), rest = _pairs(x, cos, layout), x[..., 2 * cos.shape[-1] :]
        pairs = a * cos - b * sin, b * cos + a * sin
        turned = torch.cat(pairs, -1) if layout == "half" else torch.stack(pairs, -1).flatten(-2)
        return torch.cat((turned.to(x.dtype), rest), -1)
    return _Turn.apply(x, cos, sin, layout)


def _pairs(x: Tensor, cos: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    half = cos.shape[-1]
    if layout == "half":
        return x[..., :half], x[..., half : 2 * half]
    return x[..., : 2 * half : 2], x[..., 1 : 2 * half : 2]


class _Turn(torch.autograd.Function):
    """A rotation whose gradient is the inverse rotation: half as many passes over x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.layout = layout
        wide = torch.promote_types(x.dtype, cos.dtype)
        given, cos, sin = x.to(wide), cos.to(wide), sin.to(wide)
        turned = torch.empty(x.shape, dtype=wide, device=x.device)
        (a, b), (new_a, new_b) = _pairs(given, cos, layout), _pairs(turned, cos, layout)
        torch.mul(a, cos, out=new_a).addcmul_(b, sin, value=-1)
        torch.mul(b, cos, out=new_b).addcmul_(a, sin)
        turned[..., 2 * cos.shape[-1] :] = given[..., 2 * cos.shape[-1] :]
        return turned.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dturned: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return turn(dturned, cos, -sin, ctx.layout), None, None, None
