"""A layer's encodings on the tokens of one forward pass: biases, masks, and changes of logits and outputs.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D head width.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding
from zoo.encodings.context import AttentionContext, sees
from zoo.encodings.stack import LayerEncodings
from zoo.models.logit_scale import RowScale

MOST_FIXED, MOST_LEARNED = 2**26, 2**30
"""Largest table of a bias, in elements per layer, that FlexAttention looks up. A learned bias has no other
form in training: its gradient is such a table too."""


def apply_mask(table: Tensor, context: AttentionContext) -> Tensor:
    """The table, broadcastable to [B,H,T,S], with -inf where a query may not see a key."""
    shape = context.num_queries, context.num_keys
    ends_with_own = context.query_offset + context.num_queries == context.num_keys
    if context.query_offset and ends_with_own and context.only_causal_mask() and table.shape[-2:] == shape:
        # Only among the queries' own tokens are keys later than a query: one pass over the table less.
        before, own = table.tensor_split((context.query_offset,), -1)
        return torch.cat((before, own.masked_fill(~context.own_keys().allowed(), -torch.inf)), -1)
    return table.masked_fill(~context.allowed(), -torch.inf)


@dataclass(frozen=True)
class ScoreTerms:
    """All that `attend` needs besides queries, keys and values.

    Attributes:
        layer: the encodings.
        contexts: one for each encoding, with its positions and features.
        content: queries [B,H,T,D] and keys [B,H,S,D] before any rotation, for terms that depend on them;
            by default the rotated ones.
        all_queries: False for a block of the queries, whose masks are not shared between layers.
        row_scale: the factor of each query's logits.
    """

    layer: LayerEncodings
    contexts: Sequence[AttentionContext]
    content: tuple[Tensor, Tensor] | None = None
    all_queries: bool = True
    row_scale: RowScale | None = None

    @property
    def context(self) -> AttentionContext:
        """The context of the first encoding. Rows, mask and `shared` are the same in all."""
        return self.contexts[0]

    @property
    def has_bias(self) -> bool:
        return bool(self.layer.biased)

    @property
    def bias_is_learned(self) -> bool:
        """Whether the bias of a pair of positions, scaled, may have a gradient."""
        if self.has_bias and self.row_scale is not None and not self.row_scale.shared:
            return True
        return any(next(encoding.parameters(), None) is not None for encoding, _ in self._with("biased"))

    @property
    def bias_learns(self) -> bool:
        """Whether the backward pass needs the gradient of the bias."""
        return self.bias_is_learned and torch.is_grad_enabled()

    def bias_of_pairs(self, heads: int) -> Tensor:
        """The biases of all pairs, scaled, [G,H,T,S] in float32, G batch or 1."""
        table = self._shared("bias", lambda: self.bias(heads))
        table = table if table.dim() == 4 else table[None]
        return table if self.row_scale is None else self.row_scale.of_table(table)

    @property
    def bias_is_fused(self) -> bool:
        return all(encoding.fused for encoding, _ in self._with("biased"))

    @property
    def has_content(self) -> bool:
        """Whether there are terms that depend on queries and keys, and so differ from layer to layer."""
        return bool(self.layer.scored)

    @property
    def adds_any(self) -> bool:
        return self.has_bias or self.has_content

    @property
    def needs_weights(self) -> bool:
        """Whether a hook needs the logits or the attention weights, which no fused kernel returns."""
        return bool(self.layer.reshaped or self.layer.weighing or self.layer.valued)

    def queries(self, start: int, stop: int) -> ScoreTerms:
        """The same for the queries in rows start..stop."""
        contexts = [context.queries(start, stop) for context in self.contexts]
        content = self.content
        if content is not None:
            content = content[0][:, :, start:stop], content[1][:, :, : contexts[0].num_keys]
        row_scale = None if self.row_scale is None else self.row_scale.queries(start, stop)
        return ScoreTerms(self.layer, contexts, content, all_queries=False, row_scale=row_scale)

    def content_or(self, q_BHTD: Tensor, k_BHSD: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys before any rotation, which are those given if none is kept apart."""
        return self.content or (q_BHTD, k_BHSD)

    def tensors(self) -> list[Tensor]:
        """Tensors through which a gradient may flow, besides parameters."""
        found: list[Tensor] = []
        self._map(lambda x: found.append(x) or x)
        return found

    def with_tensors(self, tensors: Iterable[Tensor]) -> ScoreTerms:
        """The same with others in the order of `tensors`, and nothing computed from the former ones."""
        left = iter(tensors)
        return self._map(lambda _: next(left))

    def _map(self, change: Callable[[Tensor], Tensor]) -> ScoreTerms:
        shared: dict = {}
        contexts = [
            replace(
                context,
                q_pos=change(context.q_pos),
                k_pos=change(context.k_pos),
                features=None if context.features is None else change(context.features),
                sinks=context.sinks and replace(context.sinks, q_pos=change(context.sinks.q_pos)),
                shared=shared,
                fixed=shared,
            )
            for context in self.contexts
        ]
        content = self.content and (change(self.content[0]), change(self.content[1]))
        row_scale = self.row_scale and replace(self.row_scale, factor_BHT1=change(self.row_scale.factor_BHT1))
        return replace(self, contexts=contexts, content=content, row_scale=row_scale)

    def parameters(self) -> list[nn.Parameter]:
        """Parameters of the encodings, each once."""
        return list(dict.fromkeys(p for one in self.layer.encodings for p in one.parameters()))

    def _with(self, hook: str) -> list[tuple[Encoding, AttentionContext]]:
        return [(self.layer.encodings[i], self.contexts[i]) for i in getattr(self.layer, hook)]

    def added(self, q_BHTD: Tensor, k_BHSD: Tensor) -> Tensor | None:
        """The sum of all biases and scores: broadcastable to [B,H,T,S], or None."""
        content = self.content_or(q_BHTD, k_BHSD)
        terms = [self.bias(q_BHTD.shape[1])]
        for one, context in self._with("scored"):
            terms.append(_with_sinks(one, context, partial(one.score, *content)))
        return _sum(terms)

    def bias(self, heads: int) -> Tensor | None:
        """The sum of all biases: [H,T,S], [B,H,T,S] or None."""
        return _sum([
            _with_sinks(one, context, lambda at, one=one: one.bias_table(at, heads))
            for one, context in self._with("biased")
        ])  # fmt: skip

    def key_bias(self, k_BHSD: Tensor) -> Tensor | None:
        """The sum as one number for each key, [B,H,1,S]; None without terms or where one has no such form."""
        if self.row_scale is not None:
            return None
        k_BHSD = k_BHSD if self.content is None else self.content[1]
        pairs = dict.fromkeys((*self.layer.biased, *self.layer.scored))
        terms = []
        for i in pairs:
            terms.append(self.layer.encodings[i].key_score(k_BHSD, self.contexts[i]))
            if terms[-1] is None:
                return None
        return _sum(terms)

    def additive_mask(
        self, q_BHTD: Tensor, k_BHSD: Tensor, dtype: torch.dtype, causal_in_kernel: bool = False
    ) -> Tensor | None:
        """Biases and scores, scaled, and the mask, in a precision; None if nothing is added or masked.

        `causal_in_kernel`: the kernel hides the later keys itself, and the mask does no more than that.
        """

        def make() -> Tensor | None:
            return self._with_mask(self.added(q_BHTD, k_BHSD), dtype, causal_in_kernel)

        # A learned scale is each layer's own; the bias that it scales is not.
        own_scale = self.has_bias and self.row_scale is not None and not self.row_scale.shared
        if self.has_content or not own_scale:
            return make() if self.has_content else self._shared("mask", make)
        bias = self._shared("bias", lambda: self.added(q_BHTD, k_BHSD))
        return self._with_mask(bias, dtype, causal_in_kernel)

    def is_by_distance(self) -> bool:
        """Whether bias and mask of a query and a key depend on the distance of their rows alone."""
        if self.has_content or self.context.masks_by_sequence or self.context.sinks is not None:
            return False
        if not self.has_bias:
            return True
        by_distance = (one.distance_only and context.consecutive for one, context in self._with("biased"))
        return self.row_scale is None and all(by_distance)

    def table_fits(self, heads: int) -> bool:
        """Whether FlexAttention looks the bias up in a table of all pairs."""
        vary = [x for _, one in self._with("biased") for x in (one.q_pos, one.k_pos) if x.dim() == 2]
        if self.row_scale is not None:
            vary.append(self.row_scale.factor_BHT1)
        batch = max([1, *map(len, vary)])  # torch.compile cannot follow `default=`
        elements = batch * heads * self.context.num_queries * self.context.num_keys
        return elements <= (MOST_LEARNED if self.bias_learns else MOST_FIXED)

    def line(self, q_BHTD: Tensor, seen: slice) -> Tensor:
        """Bias and mask by distance, in float32: [H,N], or [1,N] without a bias.

        It begins with the distance of the last query to the first of the keys `seen`, and ends with that of
        the first query to the last of them.
        """
        return self._shared("line", lambda: self._line(q_BHTD, seen))

    def _line(self, q_BHTD: Tensor, seen: slice) -> Tensor:
        context = self.context
        farthest = context.query_offset + context.num_queries - 1 - seen.start
        keys = torch.arange(context.num_queries + seen.stop - seen.start - 1, device=q_BHTD.device)
        query = keys.new_tensor([farthest])
        # As one query sees them that has all the distances before it or, not causal, on both sides.
        one = AttentionContext(query, keys, farthest, context.causal, context.window, consecutive=True)
        line = _sum([encoding.bias_table(one, q_BHTD.shape[1])[:, 0] for encoding, _ in self._with("biased")])
        line = torch.zeros(1, len(keys), device=keys.device) if line is None else line
        return line.masked_fill(~one.allowed(), -torch.inf)

    def _shared(self, what: str, make: Callable[[], Tensor | None]) -> Tensor | None:
        """make(), kept for the layers that share their biases and window; for all queries only."""
        if not self.all_queries or any(encoding.per_layer for encoding, _ in self._with("biased")):
            return make()
        key: Hashable = (what, tuple(one for one, _ in self._with("biased")), self.context.window)
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
        """The logits that attention weights are computed from, before the mask."""
        content = self.content_or(q_BHTD, k_BHSD)
        for encoding, context in self._with("reshaped"):
            logits_BHTS = _with_sinks(encoding, context, partial(encoding.logits, logits_BHTS, *content))
        return logits_BHTS if self.row_scale is None else self.row_scale.of_table(logits_BHTS)

    def scaled_queries(self, q_BHTD: Tensor) -> Tensor:
        """The queries for a kernel that does not scale logits itself."""
        return q_BHTD if self.row_scale is None else self.row_scale.of_queries(q_BHTD)

    def weights(self, logits_BHTS: Tensor) -> Tensor:
        """Attention weights from logits that are -inf where a query may not see a key."""
        return self.layer.weights(logits_BHTS, self.contexts)

    def value(self, weights_BHTS: Tensor) -> Tensor | None:
        """The sum that the encodings add to the output [B,H,T,D], or None."""
        terms = []
        for one, context in self._with("valued"):
            if context.sinks is None or not one.reads_positions:
                terms.append(one.value(weights_BHTS, context))
                continue
            sinks = context.sinks.columns
            terms.append(one.value(weights_BHTS.masked_fill(sinks, 0.0), context))
            terms.append(one.value(weights_BHTS.masked_fill(~sinks, 0.0), context.toward_sinks()))
        return _sum(terms)

    def pointwise(self, table_GHTS: Tensor | None = None) -> tuple[Callable | None, Callable | None]:
        """(score modification, mask modification) as FlexAttention takes them; None where there is none.

        The scores that it modifies are products of `scaled_queries`. The bias of a pair is looked up in a
        table, G batch or 1, or computed.
        """
        context, scale = self.context, self.row_scale
        biased = self._with("biased")

        def position(pos: Tensor, b: Tensor, row: Tensor) -> Tensor:
            return pos[row] if pos.dim() == 1 else pos[b if pos.shape[0] > 1 else 0, row]

        def add_bias(score: Tensor, b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            if table_GHTS is not None:
                return score + table_GHTS[b if len(table_GHTS) > 1 else 0, h, row, column]
            for encoding, one in biased:
                query = position(one.q_pos, b, row)
                if one.sinks is not None:
                    sink = position(one.sinks.keys, b, column)
                    query = torch.where(sink, position(one.sinks.q_pos, b, row), query)
                bias = encoding.bias(h, query, position(one.k_pos, b, column))
                score = score + (bias if scale is None else scale.of_point(bias, b, h, row))
            return score

        def is_visible(b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            sink = None if context.sinks is None else position(context.sinks.keys, b, column)
            allowed = sees(row + context.query_offset, column, context.causal, context.window, sink)
            if context.documents is not None:
                own = context.documents[b, row + context.query_offset]
                allowed = allowed & (own == context.documents[b, column])
            return allowed if context.keep is None else allowed & context.keep[b, column]

        return (add_bias if biased else None), (None if context.is_open() else is_visible)


def _with_sinks(
    one: Encoding, context: AttentionContext, make: Callable[[AttentionContext], Tensor | None]
) -> Tensor | None:
    """make(context) [...,T,S] of an encoding, with the columns of sinks as the queries look at them."""
    table = make(context)
    if table is None or context.sinks is None or not one.reads_positions:
        return table
    return torch.where(context.sinks.columns, make(context.toward_sinks()), table)


def _sum(terms: Sequence[Tensor | None]) -> Tensor | None:
    terms = [term for term in terms if term is not None]
    return sum(terms[1:], terms[0]) if terms else None
