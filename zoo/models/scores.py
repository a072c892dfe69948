"""What one layer adds to its scores, who may look at whom, and what it makes of the weights."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from zoo.encodings.base import Span, sees
from zoo.encodings.stack import View
from zoo.models.logit_scale import RowScale


class Scores:
    """A layer's encodings bound to the tokens of one forward pass; what `attend` needs beside q, k and v."""

    def __init__(
        self,
        view: View,
        spans: Sequence[Span],
        content: tuple[Tensor, Tensor] | None = None,
        whole: bool = True,
        row_scale: RowScale | None = None,
    ):
        """`spans` holds one for each encoding of the view, with its positions and what it read.

        `content` are the queries and keys before any rotation, for terms that depend on them; by default
        those that are multiplied. `row_scale` is what each query's logits are multiplied by at the end.
        """
        self.view = view
        self.spans = list(spans)
        # For what all have in common: rows, mask and memo.
        self.span = self.spans[0]
        self.content = content
        self.whole = whole
        self.row_scale = row_scale

    @property
    def has_bias(self) -> bool:
        return bool(self.view.biased)

    @property
    def bias_is_learned(self) -> bool:
        """Whether what is added for a pair of positions, scaled as it is, may have a gradient."""
        if self.has_bias and self.row_scale is not None and not self.row_scale.shared:
            return True
        return any(next(self.view.encodings[i].parameters(), None) is not None for i in self.view.biased)

    @property
    def bias_is_fused(self) -> bool:
        return all(self.view.encodings[i].fused for i in self.view.biased)

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
        spans = [span.queries(start, stop) for span in self.spans]
        content = self.content
        if content is not None:
            content = content[0][:, :, start:stop], content[1][:, :, : spans[0].num_keys]
        row_scale = None if self.row_scale is None else self.row_scale.queries(start, stop)
        return Scores(self.view, spans, content, whole=False, row_scale=row_scale)

    def added(self, q: Tensor, k: Tensor) -> Tensor | None:
        """All that is added to the scaled scores before `logits`: broadcastable to [B,H,T,S], or None."""
        terms = [self.view.encodings[i].bias_table(self.spans[i], q.shape[1]) for i in self.view.biased]
        q, k = self.content or (q, k)
        terms += [self.view.encodings[i].score(q, k, self.spans[i]) for i in self.view.scored]
        terms = [term for term in terms if term is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def additive_mask(self, q: Tensor, k: Tensor) -> Tensor | None:
        """All that is added, scaled, and the mask, in q's dtype; None where none is added and all is open."""
        own = any(self.view.encodings[i].per_layer for i in self.view.biased)
        if self.has_content or own or not self.whole:
            return self._folded(q, self.added(q, k))
        # The same for all layers that share their encodings and their window: made by the first of them.
        shared = tuple(id(self.view.encodings[i]) for i in self.view.biased)
        if self.has_bias and self.row_scale is not None and not self.row_scale.shared:
            return self._folded(q, self._once(("bias", shared), lambda: self.added(q, k)))
        return self._once(("mask", shared, self.span.window), lambda: self._folded(q, self.added(q, k)))

    def _once(self, key: Hashable, make: Callable[[], Tensor | None]) -> Tensor | None:
        if key not in self.span.memo:
            self.span.memo[key] = make()
        return self.span.memo[key]

    def _folded(self, q: Tensor, added: Tensor | None) -> Tensor | None:
        if added is None:
            return None if self.span.is_open() else self.span.allowed()
        if self.row_scale is not None:
            added = self.row_scale.of_table(added)
        if not self.span.is_open():
            added = added.masked_fill(~self.span.allowed(), -torch.inf)
        # A mask of three dimensions would cost the fused kernel: on a CPU it takes two or four.
        return (added[None] if added.dim() == 3 else added).to(q.dtype)

    def logits(self, logits: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """The logits that go into the softmax, the mask apart."""
        q, k = self.content or (q, k)
        for i in self.view.reshaped:
            logits = self.view.encodings[i].logits(logits, q, k, self.spans[i])
        return logits if self.row_scale is None else self.row_scale.of_table(logits)

    def scaled_queries(self, q: Tensor) -> Tensor:
        """The queries that a kernel is given which scales no logits itself."""
        return q if self.row_scale is None else self.row_scale.of_queries(q)

    def value(self, weights: Tensor) -> Tensor | None:
        terms = [self.view.encodings[i].value(weights, self.spans[i]) for i in self.view.valued]
        terms = [term for term in terms if term is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def pointwise(self) -> tuple[Callable | None, Callable | None]:
        """(score modification, mask modification) as FlexAttention takes them; None where there is none.

        The scores that are modified are products of `scaled_queries`.
        """
        span, scale = self.span, self.row_scale
        biased = [(self.view.encodings[i], self.spans[i]) for i in self.view.biased]

        def place(pos: Tensor, b: Tensor, row: Tensor) -> Tensor:
            return pos[row] if pos.dim() == 1 else pos[b if pos.shape[0] > 1 else 0, row]

        def add_bias(score: Tensor, b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            for encoding, its in biased:
                bias = encoding.bias(h, place(its.q_pos, b, row), place(its.k_pos, b, column))
                score = score + (bias if scale is None else scale.of_point(bias, b, h, row))
            return score

        def may_look(b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            allowed = sees(row + span.first, column, span.causal, span.window)
            return allowed if span.keep is None else allowed & span.keep[b, column]

        return (add_bias if biased else None), (None if span.is_open() else may_look)
