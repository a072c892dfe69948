"""RoPE with another distance for far pairs, for models that were trained with RoPE alone."""

from dataclasses import replace

import torch
from torch import Tensor

from zoo.encodings.base import Size, Span, per_query_and_key
from zoo.encodings.rotary.rope import RoPE


class TwoRanges(RoPE):
    """The base of encodings that keep RoPE's distances in a window and shorten those beyond it.

    Beside the product of RoPE, for pairs nearer than `window`, another is made for those beyond, of
    shortened positions, `shorten(p)` of queries and keys, with the queries moved away by `gap` so that the
    far distances go on where the near ones end. Subclasses say what these two are, and may `sharpen` queries.
    """

    def __init__(self, size: Size, *, window: int | None, base: float, layout: str, partial: float):
        super().__init__(size, base=base, layout=layout, partial=partial)
        self.window = window if window is not None else max(1, size.length // 4)

    @property
    def gap(self) -> float:
        """By how much far queries are moved, in tokens."""
        raise NotImplementedError

    def shorten(self, pos: Tensor) -> Tensor:
        """The positions of far tokens, of the same shape."""
        raise NotImplementedError

    def sharpen(self, q: Tensor, pos: Tensor) -> Tensor:
        """Queries [B,H,T,D] at their positions to those that are turned; may be wider in precision."""
        return q

    def rotate(self, q: Tensor, k: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        return self._turned(self.sharpen(q, span.q_pos), k, span)

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, span: Span) -> Tensor:
        if span.consecutive and span.num_keys <= self.window:
            return logits
        q = self.sharpen(q, span.q_pos)
        query, key = per_query_and_key(span.q_pos, span.k_pos)
        distance = query - key
        near = self._scores(q, k, replace(span, memo={}), logits.dtype)
        # The difference is added, so that whatever else was added to the scores stays.
        behind = self._scores(q, k, self._far(span, self.gap), logits.dtype)
        changed = torch.where(distance >= self.window, logits + (behind - near), logits)
        if span.causal:
            return changed
        ahead = self._scores(q, k, self._far(span, -self.gap), logits.dtype)
        return torch.where(distance <= -self.window, logits + (ahead - near), changed)

    def _far(self, span: Span, gap: float) -> Span:
        q_pos, k_pos = self.shorten(span.q_pos) + gap, self.shorten(span.k_pos)
        # A memo of its own: these positions are new tensors in every layer and every block of queries, of no
        # use to the next.
        return replace(span, q_pos=q_pos, k_pos=k_pos, consecutive=False, memo={})

    def _scores(self, q: Tensor, k: Tensor, span: Span, dtype: torch.dtype) -> Tensor:
        q, k = self._turned(q, k, span)
        return (q @ k.transpose(-1, -2)).to(dtype) * self.size.head_dim**-0.5

    def _turned(self, q: Tensor, k: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        # Rounded once, at the end: in a narrow precision sharpened queries come in float32.
        q, k = super().rotate(q, k, span)
        return q.to(k.dtype), k
