"""A layer's encodings on the tokens of one forward pass: biases, masks, and changes of logits and outputs.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D head width.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from zoo.encodings.base import AttentionContext, sees
from zoo.encodings.stack import LayerEncodings
from zoo.models.logit_scale import RowScale


def apply_mask(table: Tensor, context: AttentionContext) -> Tensor:
    """The table, broadcastable to [B,H,T,S], with -inf where a query may not see a key."""
    shape = context.num_queries, context.num_keys
    ends_with_own = context.query_offset + context.num_queries == context.num_keys
    if context.query_offset and ends_with_own and context.only_causal_mask() and table.shape[-2:] == shape:
        # Only among the queries' own tokens are keys later than a query: one pass over the table less.
        before, own = table.tensor_split((context.query_offset,), -1)
        return torch.cat((before, own.masked_fill(~context.own_keys().allowed(), -torch.inf)), -1)
    return table.masked_fill(~context.allowed(), -torch.inf)


class ScoreTerms:
    """All that `attend` needs besides queries, keys and values."""

    def __init__(
        self,
        view: LayerEncodings,
        contexts: Sequence[AttentionContext],
        content: tuple[Tensor, Tensor] | None = None,
        all_queries: bool = True,
        row_scale: RowScale | None = None,
    ):
        """Args:
        contexts: one for each encoding of the view, with its positions and what its `read` returned.
        content: queries [B,H,T,D] and keys [B,H,S,D] before any rotation, for terms that depend on them;
            by default those that are multiplied.
        all_queries: False for a block of the queries, whose masks are not kept for other layers.
        row_scale: the factor of each query's logits.
        """
        self.view = view
        self.contexts = list(contexts)
        # Rows, mask and `shared` are the same in all contexts.
        self.context = self.contexts[0]
        self.content = content
        self.all_queries = all_queries
        self.row_scale = row_scale

    @property
    def has_bias(self) -> bool:
        return bool(self.view.biased)

    @property
    def bias_is_learned(self) -> bool:
        """Whether the bias of a pair of positions, scaled, may have a gradient."""
        if self.has_bias and self.row_scale is not None and not self.row_scale.shared:
            return True
        return any(next(self.view.encodings[i].parameters(), None) is not None for i in self.view.biased)

    @property
    def bias_is_fused(self) -> bool:
        return all(self.view.encodings[i].fused for i in self.view.biased)

    @property
    def has_content(self) -> bool:
        """Whether there are terms that depend on queries and keys, and so differ from layer to layer."""
        return bool(self.view.scored)

    @property
    def adds_any(self) -> bool:
        return self.has_bias or self.has_content

    @property
    def needs_weights(self) -> bool:
        """Whether a hook needs the logits or the attention weights, which no fused kernel returns."""
        return bool(self.view.reshaped or self.view.valued)

    def queries(self, start: int, stop: int) -> ScoreTerms:
        """The same for the queries in rows start..stop."""
        contexts = [context.queries(start, stop) for context in self.contexts]
        content = self.content
        if content is not None:
            content = content[0][:, :, start:stop], content[1][:, :, : contexts[0].num_keys]
        row_scale = None if self.row_scale is None else self.row_scale.queries(start, stop)
        return ScoreTerms(self.view, contexts, content, all_queries=False, row_scale=row_scale)

    def tensors(self) -> list[Tensor]:
        """What differs from one forward pass to the next, beside positions and masks."""
        read = [context.features for context in self.contexts if context.features is not None]
        return [
            *(self.content or ()),
            *read,
            *([] if self.row_scale is None else [self.row_scale.factor_BHT1]),
        ]

    def with_tensors(self, tensors: Sequence[Tensor]) -> ScoreTerms:
        """The same of others, in the order of `tensors`."""
        left = iter(tensors)
        content = None if self.content is None else (next(left), next(left))
        contexts = [
            context if context.features is None else replace(context, features=next(left))
            for context in self.contexts
        ]
        row_scale = None if self.row_scale is None else replace(self.row_scale, factor_BHT1=next(left))
        return ScoreTerms(self.view, contexts, content, self.all_queries, row_scale)

    def parameters(self) -> list[nn.Parameter]:
        """Those of the encodings that do something here, each once."""
        used = {*self.view.biased, *self.view.scored, *self.view.reshaped, *self.view.valued}
        return list(dict.fromkeys(p for i in sorted(used) for p in self.view.encodings[i].parameters()))

    def added(self, q_BHTD: Tensor, k_BHSD: Tensor) -> Tensor | None:
        """The sum of all biases and scores: broadcastable to [B,H,T,S], or None."""
        terms = [
            self.view.encodings[i].bias_table(self.contexts[i], q_BHTD.shape[1]) for i in self.view.biased
        ]
        q_BHTD, k_BHSD = self.content or (q_BHTD, k_BHSD)
        terms += [self.view.encodings[i].score(q_BHTD, k_BHSD, self.contexts[i]) for i in self.view.scored]
        terms = [term for term in terms if term is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def key_bias(self, k_BHSD: Tensor) -> Tensor | None:
        """All biases and scores as a number of each key, [B,H,1,S]; None if there are none, or other ones."""
        if self.row_scale is not None:
            return None
        terms, k_BHSD = [], k_BHSD if self.content is None else self.content[1]
        for i in {*self.view.biased, *self.view.scored}:
            terms.append(self.view.encodings[i].key_score(k_BHSD, self.contexts[i]))
            if terms[-1] is None:
                return None
        return sum(terms[1:], terms[0]) if terms else None

    def additive_mask(
        self, q_BHTD: Tensor, k_BHSD: Tensor, dtype: torch.dtype, causal_in_kernel: bool = False
    ) -> Tensor | None:
        """Biases and scores, scaled, and the mask, in a precision; None if nothing is added or masked.

        `causal_in_kernel`: the kernel hides the later keys itself, and the mask does no more than that.
        """

        def masked(added: Tensor | None) -> Tensor | None:
            return self._with_mask(added, dtype, causal_in_kernel)

        per_layer = any(self.view.encodings[i].per_layer for i in self.view.biased)
        if self.has_content or per_layer or not self.all_queries:
            return masked(self.added(q_BHTD, k_BHSD))
        # The same in all layers that share their encodings and window: computed by the first of them.
        shared = tuple(id(self.view.encodings[i]) for i in self.view.biased)
        if self.has_bias and self.row_scale is not None and not self.row_scale.shared:
            return masked(self._once(("bias", shared), lambda: self.added(q_BHTD, k_BHSD)))
        return self._once(("mask", shared, self.context.window), lambda: masked(self.added(q_BHTD, k_BHSD)))

    def is_by_distance(self) -> bool:
        """Whether bias and mask of a query and a key depend on how far apart their rows are and on nothing
        else."""
        if self.has_content or self.context.keep is not None:
            return False
        if not self.has_bias:
            return True
        if self.row_scale is not None:
            return False
        biased = ((self.view.encodings[i], self.contexts[i]) for i in self.view.biased)
        return all(encoding.distance_only and context.consecutive for encoding, context in biased)

    def line(self, q_BHTD: Tensor, seen: slice) -> Tensor:
        """Bias and mask by distance, in float32: [H,N], or [1,N] without a bias.

        It begins with the distance of the last query to the first of the keys `seen`, and ends with that of
        the first query to the last of them.
        """
        shared = tuple(id(self.view.encodings[i]) for i in self.view.biased)
        if self.all_queries and not any(self.view.encodings[i].per_layer for i in self.view.biased):
            return self._once(("line", shared, self.context.window), lambda: self._line(q_BHTD, seen))
        return self._line(q_BHTD, seen)

    def _line(self, q_BHTD: Tensor, seen: slice) -> Tensor:
        context = self.context
        farthest = context.query_offset + context.num_queries - 1 - seen.start
        keys = torch.arange(context.num_queries + seen.stop - seen.start - 1, device=q_BHTD.device)
        query = keys.new_tensor([farthest])
        # As one query sees them that has all the distances before it or, not causal, on both sides.
        one = AttentionContext(query, keys, farthest, context.causal, context.window, consecutive=True)
        tables = [self.view.encodings[i].bias_table(one, q_BHTD.shape[1]) for i in self.view.biased]
        line = sum(tables[1:], tables[0])[:, 0] if tables else torch.zeros(1, len(keys), device=keys.device)
        return line.masked_fill(~one.allowed(), -torch.inf)

    def _once(self, key: Hashable, make: Callable[[], Tensor | None]) -> Tensor | None:
        if key not in self.context.shared:
            self.context.shared[key] = make()
        return self.context.shared[key]

    def _with_mask(self, added: Tensor | None, dtype: torch.dtype, causal_in_kernel: bool) -> Tensor | None:
        unmasked = causal_in_kernel or self.context.is_open()
        if added is None:
            return None if unmasked else self.context.allowed()
        if self.row_scale is not None:
            added = self.row_scale.of_table(added)
        if not unmasked:
            added = apply_mask(added, self.context)
        # The fused CPU kernel takes masks of two or four dimensions, not three.
        return (added[None] if added.dim() == 3 else added).to(dtype)

    def logits(self, logits_BHTS: Tensor, q_BHTD: Tensor, k_BHSD: Tensor) -> Tensor:
        """The logits that go into the softmax, before the mask."""
        q_BHTD, k_BHSD = self.content or (q_BHTD, k_BHSD)
        for i in self.view.reshaped:
            logits_BHTS = self.view.encodings[i].logits(logits_BHTS, q_BHTD, k_BHSD, self.contexts[i])
        return logits_BHTS if self.row_scale is None else self.row_scale.of_table(logits_BHTS)

    def scaled_queries(self, q_BHTD: Tensor) -> Tensor:
        """The queries for a kernel that does not scale logits itself."""
        return q_BHTD if self.row_scale is None else self.row_scale.of_queries(q_BHTD)

    def value(self, weights_BHTS: Tensor) -> Tensor | None:
        """What the encodings add to the output [B,H,T,D]."""
        terms = [self.view.encodings[i].value(weights_BHTS, self.contexts[i]) for i in self.view.valued]
        terms = [term for term in terms if term is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def pointwise(self) -> tuple[Callable | None, Callable | None]:
        """(score modification, mask modification) as FlexAttention takes them; None where there is none.

        The scores that it modifies are products of `scaled_queries`.
        """
        context, scale = self.context, self.row_scale
        biased = [(self.view.encodings[i], self.contexts[i]) for i in self.view.biased]

        def position(pos: Tensor, b: Tensor, row: Tensor) -> Tensor:
            return pos[row] if pos.dim() == 1 else pos[b if pos.shape[0] > 1 else 0, row]

        def add_bias(score: Tensor, b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            for encoding, one in biased:
                bias = encoding.bias(h, position(one.q_pos, b, row), position(one.k_pos, b, column))
                score = score + (bias if scale is None else scale.of_point(bias, b, h, row))
            return score

        def is_visible(b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            allowed = sees(row + context.query_offset, column, context.causal, context.window)
            return allowed if context.keep is None else allowed & context.keep[b, column]

        return (add_bias if biased else None), (None if context.is_open() else is_visible)
