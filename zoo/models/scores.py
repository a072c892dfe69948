"""What one layer adds to its scores, who may look at whom, and what it makes of the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from zoo.encodings.base import Encoding, Span, per_query_and_key, sees
from zoo.encodings.stack import View


class Scores:
    """A layer's encodings bound to the tokens of one forward pass; what `attend` needs beside q, k and v."""

    def __init__(self, view: View, spans: Sequence[Span], whole: bool = True):
        """`spans` holds one for each encoding of the view: the same span, with what that encoding read."""
        self.view = view
        self.spans = list(spans)
        self.span = self.spans[0]
        self.whole = whole

    @property
    def has_bias(self) -> bool:
        return bool(self.view.biased)

    @property
    def bias_is_learned(self) -> bool:
        return any(next(self.view.encodings[i].parameters(), None) is not None for i in self.view.biased)

    @property
    def has_content(self) -> bool:
        """Terms that depend on queries and keys, and so differ from layer to layer."""
        return bool(self.view.scored)

    @property
    def needs_weights(self) -> bool:
        """Whether a hook must see the logits or the weights, which no fused kernel gives away."""
        return bool(self.view.reshaped or self.view.valued)

    def queries(self, start: int, stop: int) -> Scores:
        """The same for the queries in rows start..stop."""
        return Scores(self.view, [span.queries(start, stop) for span in self.spans], whole=False)

    def added(self, q: Tensor, k: Tensor) -> Tensor | None:
        """All that is added to the scaled scores before `logits`: broadcastable to [B,H,T,S], or None."""
        terms = [dense_bias(self.view.encodings[i], self.span, q.shape[1]) for i in self.view.biased]
        terms += [self.view.encodings[i].score(q, k, self.spans[i]) for i in self.view.scored]
        terms = [term for term in terms if term is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def additive_mask(self, q: Tensor, k: Tensor) -> Tensor | None:
        """All that is added, and the mask, in q's dtype; None where nothing is added and all is open."""
        if self.has_content or not self.whole:
            return self._folded(q, k)
        # The same for all layers that share their encodings: folded by the first of them.
        key = ("mask", tuple(id(self.view.encodings[i]) for i in self.view.biased))
        if key not in self.span.memo:
            self.span.memo[key] = self._folded(q, k)
        return self.span.memo[key]

    def _folded(self, q: Tensor, k: Tensor) -> Tensor | None:
        added = self.added(q, k)
        if self.span.is_open():
            return None if added is None else added.to(q.dtype)
        allowed = self.span.allowed()
        if added is None:
            return allowed
        return added.masked_fill(~allowed, -torch.inf).to(q.dtype)

    def logits(self, logits: Tensor, q: Tensor, k: Tensor) -> Tensor:
        for i in self.view.reshaped:
            logits = self.view.encodings[i].logits(logits, q, k, self.spans[i])
        return logits

    def value(self, weights: Tensor) -> Tensor | None:
        terms = [self.view.encodings[i].value(weights, self.spans[i]) for i in self.view.valued]
        terms = [term for term in terms if term is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def pointwise(self) -> tuple[Callable | None, Callable | None]:
        """(score modification, mask modification) as FlexAttention takes them; None where there is none."""
        span, biased = self.span, [self.view.encodings[i] for i in self.view.biased]

        def place(pos: Tensor, b: Tensor, row: Tensor) -> Tensor:
            return pos[row] if pos.dim() == 1 else pos[b if pos.shape[0] > 1 else 0, row]

        def add_bias(score: Tensor, b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            for encoding in biased:
                score = score + encoding.bias(h, place(span.q_pos, b, row), place(span.k_pos, b, column))
            return score

        def may_look(b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            allowed = sees(row + span.first, column, span.causal, span.window)
            return allowed if span.keep is None else allowed & span.keep[b, column]

        return (add_bias if biased else None), (None if span.is_open() else may_look)


def dense_bias(encoding: Encoding, span: Span, num_heads: int) -> Tensor:
    """A pointwise bias as a table, [H,T,S] or [B,H,T,S], in float32."""
    head = torch.arange(num_heads, device=span.q_pos.device)
    if encoding.distance_only and span.consecutive:
        # Each diagonal holds one value: compute T + S - 1 of them and lay them out, instead of T times S.
        farthest = span.first + span.num_queries - 1
        distance = torch.arange(farthest, span.first - span.num_keys, -1, device=head.device)
        line = encoding.bias(head[:, None], distance, torch.zeros_like(distance))
        return line.unfold(-1, span.num_keys, 1).flip(-2)
    q, k = per_query_and_key(span.q_pos, span.k_pos)
    return encoding.bias(head[:, None, None], q, k)
