"""RoPE with another distance for far pairs, for models that were trained with RoPE alone."""

from typing import Any

import torch
from torch import Tensor

from zoo.encodings.base import Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.rope import RoPE
from zoo.encodings.rotary.rotation import turn


class TwoRanges(RoPE):
    """The base of encodings that keep RoPE's distances in a window and shorten those beyond it.

    Pairs nearer than `window` have the product of RoPE. Pairs beyond have the product at shortened positions,
    `shorten(p)` of queries and keys, with the queries moved away by `gap`, so that far distances begin where
    near ones end. Subclasses define these two, and may `sharpen` queries. Angles are those of RoPE with all
    its options, scalings included.
    """

    def __init__(self, size: Size, *, window: int | None, **rope: Any):
        super().__init__(size, **rope)
        if self.scaling.depends_on_length:
            raise ValueError(
                f"scaling {self.scaling.rule} follows the length of the sequence, whose distances "
                f"{self.name} shortens; use one that does not, such as linear, ntk or yarn"
            )
        self.window = window if window is not None else max(1, size.length // 4)

    @property
    def gap(self) -> float:
        """By how much far queries are moved, in tokens."""
        raise NotImplementedError

    def shorten(self, pos: Tensor) -> Tensor:
        """The positions of far tokens, of the same shape."""
        raise NotImplementedError

    def sharpen(self, q: Tensor, pos: Tensor) -> Tensor:
        """Queries [B,H,T,D] at their positions before they are turned; may be wider in precision."""
        return q

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        # Rounded once, at the end: in a narrow precision sharpened queries come in float32.
        q, k = super().rotate(self.sharpen(q, context.q_pos), k, context)
        return q.to(k.dtype), k

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        if context.consecutive and context.num_keys <= self.window:
            return logits
        q, keys = self.sharpen(q, context.q_pos), self._far_and_near(k, context)
        distance = context.distance()
        # The difference is added, so that terms of other encodings stay.
        far = self.shorten(context.q_pos)
        behind = self._difference(q, keys, context, far + self.gap).to(logits.dtype)
        changed = logits + behind.masked_fill(distance < self.window, 0.0)
        if context.causal:
            return changed
        ahead = self._difference(q, keys, context, far - self.gap).to(logits.dtype)
        return changed + ahead.masked_fill(distance > -self.window, 0.0)

    def _difference(self, q: Tensor, keys_BHSE: Tensor, context: AttentionContext, far: Tensor) -> Tensor:
        """The scores of queries at positions `far` less those of near pairs, [B,H,T,S], of `_far_and_near`
        keys."""
        turned, near = (
            self.turn_queries(q, *self.cos_sin(pos, context.k_pos)) for pos in (far, context.q_pos)
        )
        q_BHTE = torch.cat((turned, -near), -1) * self.size.scale
        return q_BHTE.to(keys_BHSE.dtype) @ keys_BHSE.mT

    def _far_and_near(self, k: Tensor, context: AttentionContext) -> Tensor:
        """Keys turned at their shortened positions and at their own, side by side: [B,H,S,2D].

        Each is turned once for all blocks of queries and, while decoding, for all later tokens.
        """
        rows = context.rows("far and near keys")
        count = 0 if rows is None else rows.count
        if rows is None or count < context.num_keys:
            k, pos = k[:, :, count:], context.k_pos[..., count:]
            angles = (self.cos_sin(at, context.k_pos) for at in (self.shorten(pos), pos))
            new = (turn(k, cos, sin, self.layout) for cos, sin in angles)
            both = torch.cat([one.to(k.dtype) for one in new], -1)
            if rows is None:
                return both
            rows.append(both)
        return rows.all()[:, :, : context.num_keys]
