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
from zoo.encodings.context import AttentionContext
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
        self._map_tensors(lambda x: found.append(x) or x)
        return found

    def with_tensors(self, tensors: Iterable[Tensor]) -> ScoreTerms:
        """The same with others in the order of `tensors`, and nothing computed from the former ones."""
        left = iter(tensors)
        return self._map_tensors(lambda _: next(left))

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> ScoreTerms:
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

    def using(self, hook: str) -> list[tuple[Encoding, AttentionContext]]:
        """The encodings in a list of the layer, such as `biased`, and the context of each."""
        return [(self.layer.encodings[i], self.contexts[i]) for i in getattr(self.layer, hook)]

    def added(self, q_BHTD: Tensor, k_BHSD: Tensor) -> Tensor | None:
        """The sum of all biases and scores: broadcastable to [B,H,T,S], or None."""
        content = self.content_or(q_BHTD, k_BHSD)
        terms = [self.bias(q_BHTD.shape[1])]
        for one, context in self.using("scored"):
            terms.append(_with_sinks(one, context, partial(one.score, *content)))
        return total(terms)

    def bias(self, heads: int) -> Tensor | None:
        """The sum of all biases: [H,T,S], [B,H,T,S] or None."""
        return total([
            _with_sinks(one, context, lambda at, one=one: one.bias_table(at, heads))
            for one, context in self.using("biased")
        ])  # fmt: skip

    def once(self, what: str, make: Callable[[], Tensor | None]) -> Tensor | None:
        """make(), kept for the layers that share their biases and window; for all queries only."""
        if not self.all_queries or any(encoding.per_layer for encoding, _ in self.using("biased")):
            return make()
        key: Hashable = (what, tuple(one for one, _ in self.using("biased")), self.context.window)
        if key not in self.context.shared:
            self.context.shared[key] = make()
        return self.context.shared[key]

    def logits(self, logits_BHTS: Tensor, q_BHTD: Tensor, k_BHSD: Tensor) -> Tensor:
        """The logits that attention weights are computed from, before the mask."""
        content = self.content_or(q_BHTD, k_BHSD)
        for encoding, context in self.using("reshaped"):
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
        for one, context in self.using("valued"):
            if context.sinks is None or not one.reads_positions:
                terms.append(one.value(weights_BHTS, context))
                continue
            sinks = context.sinks.columns
            terms.append(one.value(weights_BHTS.masked_fill(sinks, 0.0), context))
            terms.append(one.value(weights_BHTS.masked_fill(~sinks, 0.0), context.toward_sinks()))
        return total(terms)


def _with_sinks(
    one: Encoding, context: AttentionContext, make: Callable[[AttentionContext], Tensor | None]
) -> Tensor | None:
    """make(context) [...,T,S] of an encoding, with the columns of sinks as the queries look at them."""
    table = make(context)
    if table is None or context.sinks is None or not one.reads_positions:
        return table
    return torch.where(context.sinks.columns, make(context.toward_sinks()), table)


def total(terms: Sequence[Tensor | None]) -> Tensor | None:
    """The sum of the terms that are there; None of none."""
    terms = [term for term in terms if term is not None]
    return sum(terms[1:], terms[0]) if terms else None
