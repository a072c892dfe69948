"""The context of one attention: which queries look at which keys, and the position of each.

Shapes are named by letters: B batch, T queries, S keys, H heads, D head width, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

Made = TypeVar("Made")


@dataclass(frozen=True)
class Sinks:
    """The first tokens of each sequence or document, which stay visible beyond a window.

    `keys` [S] or [B,S] is True at them. A query looks at them from `q_pos` [T] or [B,T], its position among
    the tokens that it sees: the sinks, and after them the window.
    """

    keys: Tensor
    q_pos: Tensor

    @property
    def columns(self) -> Tensor:
        """`keys` in the shape in which it broadcasts to tables [...,T,S]: [S] or [B,1,1,S]."""
        return self.keys if self.keys.dim() == 1 else self.keys[:, None, None, :]


@dataclass(frozen=True)
class AttentionContext:
    """Which tokens look at which: T queries at S keys, each with its own position.

    `q_pos` [T] or [B,T] and `k_pos` [S] or [B,S] are position ids (int or float); `query_offset` is the row
    of the first query among the keys. `keep` [B,S] is False at padding. `documents` [B,S] is the row in which
    the document of each key begins: a query attends within its document; None: no boundaries.
    `window` is the number of tokens that a query sees on each side it looks to, itself included. `features`
    [B,S,...] is the output of the encoding's `read` for every key.
    """

    q_pos: Tensor
    k_pos: Tensor
    query_offset: int = 0
    causal: bool = True
    window: int | None = None
    keep: Tensor | None = None
    consecutive: bool = False
    """The positions are the default ones, 0, 1, 2 ..., so that distance is a difference of rows."""
    documents: Tensor | None = None
    sinks: Sinks | None = None
    """The first tokens that queries see beyond the window; None where there are no others to see."""
    features: Any = field(default=None, repr=False)
    shared: dict = field(default_factory=dict, repr=False, compare=False)
    """Values computed once in a forward pass and used by every layer."""
    fixed: dict = field(default_factory=dict, repr=False, compare=False)
    """Such values that depend on positions and mask alone: gradient checkpointing keeps them. See `once`."""
    layer_cache: Any = field(default=None, repr=False, compare=False)
    """Values of each token that a layer's encodings keep, each under a name, from one block of queries to the
    next and, while decoding, from one forward pass to the next: a `zoo.models.cache.LayerCache`, or None. See
    `rows`."""
    group: tuple[int, ...] = ()
    """The group of heads that an encoding serves, where groups have different ones: they share no rows."""

    @property
    def num_queries(self) -> int:
        return self.q_pos.shape[-1]

    @property
    def num_keys(self) -> int:
        return self.k_pos.shape[-1]

    def in_window(self, window: int, sink_tokens: int = 0) -> AttentionContext:
        """The same with a sliding window, and the first tokens visible beyond it.

        StreamingLLM (Xiao et al. 2024, arXiv:2309.17453): positions count inside the cache, which holds the
        first tokens and the window. So distances to the first tokens are at most sink_tokens + window - 1. In
        LM-Infinite (Han et al. 2024, arXiv:2308.16137) they are at most the window.
        """
        if sink_tokens and window + sink_tokens >= self.num_keys:
            return self
        if not sink_tokens:
            return replace(self, window=window)
        row = torch.arange(self.num_keys, device=self.k_pos.device)
        first = row.new_zeros(1) if self.keep is None else self.keep.long().argmax(-1, keepdim=True)
        first = first if self.documents is None else self.documents
        keys = (row >= first) & (row < first + sink_tokens)
        last = (first + sink_tokens + window - 1).expand_as(keys)
        own = slice(self.query_offset, self.query_offset + self.num_queries)
        at = row[own].minimum(last[..., own])
        q_pos = (
            self.k_pos[at] if self.k_pos.dim() == 1 else self.k_pos.gather(-1, at.expand(len(self.k_pos), -1))
        )
        return replace(self, window=window, sinks=Sinks(keys, q_pos))

    def toward_sinks(self) -> AttentionContext:
        """The context of the sink keys: query positions count from the sinks, no cached key is reused."""
        return replace(self, q_pos=self.sinks.q_pos, consecutive=False, layer_cache=None)

    def queries(self, start: int, stop: int, all_keys: bool = False) -> AttentionContext:
        """The queries in rows start..stop, and the keys that any of them may look at, or all keys."""
        keys = self.query_offset + stop if self.causal and not all_keys else self.num_keys
        sinks = self.sinks and Sinks(self.sinks.keys[..., :keys], self.sinks.q_pos[..., start:stop])
        return replace(
            self,
            sinks=sinks,
            q_pos=self.q_pos[..., start:stop],
            k_pos=self.k_pos[..., :keys],
            query_offset=self.query_offset + start,
            keep=None if self.keep is None else self.keep[:, :keys],
            documents=None if self.documents is None else self.documents[:, :keys],
            features=None if self.features is None else self.features[:, :keys],
        )

    def own_keys(self) -> AttentionContext:
        """The same queries, with no other keys than those of their own tokens."""
        keep, documents, features = (
            None if x is None else x[:, self.query_offset : self.query_offset + self.num_queries]
            for x in (self.keep, self.documents, self.features)
        )
        own = {"keep": keep, "documents": documents, "features": features, "sinks": None}
        return replace(self, k_pos=self.q_pos, query_offset=0, **own)

    def token_counts(self) -> Tensor:
        """The number of tokens up to each query in its sequence or document, with itself: [T] or [B,T]."""
        rows = slice(self.query_offset, self.query_offset + self.num_queries)
        if self.keep is not None:
            return self.keep.cumsum(-1)[:, rows]
        count = torch.arange(rows.start, rows.stop, device=self.q_pos.device) + 1
        return count if self.documents is None else count - self.documents[:, rows]

    @property
    def masks_by_sequence(self) -> bool:
        """Whether the mask differs between the sequences of a batch."""
        return self.keep is not None or self.documents is not None

    def once(self, owner: Hashable, at: Tensor, make: Callable[[Tensor], Made]) -> Made:
        """make(at), computed by the first layer of this forward pass that asks and kept for the others.

        It depends on no parameter.
        """
        made = self.fixed.setdefault(("once", owner), [])
        for known, value in made:
            if known is at:  # a key of its id would recompile the model in every step
                return value
        made.append((at, make(at)))
        return made[-1][1]

    def rows(self, name: str) -> Any:
        """The `zoo.models.cache.Rows` [B,H,tokens,D] that the layer keeps under a name; None where it keeps
        none, or under gradients, which need all the way to a row."""
        return (
            None
            if self.layer_cache is None or torch.is_grad_enabled()
            else self.layer_cache.named((*self.group, name), -2)
        )

    def running_sum(self, x: Tensor) -> Tensor:
        """The sum of x [B,S,F] over the tokens of a key's document up to that key, without padding.

        While decoding x may be that of the last keys alone: the sum then begins with the first of them.
        """
        if self.keep is not None:
            x = x * self.keep[:, -x.shape[1] :, None]
        if self.documents is None:
            return x.cumsum(1)
        # The sum before a document cancels between two of its tokens, and so needs no gradient.
        total = x.double().cumsum(1)
        before = (total - x).detach().gather(1, self.documents[..., None].expand_as(x))
        return (total - before).to(x.dtype)

    def convolved(self, x: Tensor, taps: Tensor, start: int, stop: int) -> Tensor:
        """The sum of x over a key and the tokens just before it, each times its tap, for the keys in rows
        start..stop: [B,T,F].

        x [B,N,F] is that of the keys before row `stop`, as many as the taps [K,F] reach; the last tap is the
        key's own. Padding and tokens of other documents count as 0.
        """
        count, first = stop - start, stop - x.shape[1]
        if self.keep is not None:
            x = x * self.keep[:, first:stop, None]
        if missing := len(taps) - 1 - (start - first):
            x = F.pad(x, (0, 0, missing, 0))
        if count == 1 and self.documents is None:
            return (x * taps).sum(1, keepdim=True)
        # Few taps: each a product is faster than a convolution.
        parts = [x[:, i : i + count] * tap for i, tap in enumerate(taps)]
        if self.documents is not None:
            row, begin = torch.arange(start, stop, device=x.device), self.documents[:, start:stop]
            parts = [part * (row - back >= begin)[..., None] for back, part in enumerate(parts[::-1])]
        return sum(parts[1:], parts[0])

    def previous(self, x: Tensor, dim: int = -2, before: Tensor | None = None) -> Tensor:
        """x of the token just before each, in the same sequence or document; 0 where there is none.

        x has the rows of the queries along `dim`, or of all keys; `before` is the row before these.
        """
        count = x.shape[dim]
        start = self.query_offset if count < self.num_keys else 0
        before = torch.zeros_like(x.narrow(dim, 0, 1)) if before is None else before
        shifted = torch.cat((before, x.narrow(dim, 0, count - 1)), dim)
        shape = [-1 if at in (0, dim % x.dim()) else 1 for at in range(x.dim())]
        shape[0] = x.shape[0]
        if self.keep is not None:
            padding = ~F.pad(self.keep, (1, 0))[:, start : start + count]
            shifted = shifted.masked_fill(padding.view(shape), 0.0)
        if self.documents is not None:
            row = torch.arange(start, start + count, device=x.device)
            first = self.documents[:, start : start + count] == row
            shifted = shifted.masked_fill(first.view(shape), 0.0)
        return shifted

    def only_causal_mask(self) -> bool:
        """Whether the causal mask is all there is."""
        return self.causal and not self.masks_by_sequence and not self._window_bites()

    def is_causal_to_the_end(self) -> bool:
        """Whether the causal mask is all there is, and the last key is that of the last query."""
        return self.only_causal_mask() and self.query_offset + self.num_queries == self.num_keys

    def is_plain_causal(self) -> bool:
        """Whether the causal mask is all there is, over as many keys as queries."""
        return self.only_causal_mask() and self.num_queries == self.num_keys

    def is_open(self) -> bool:
        """Whether every query sees every key."""
        causal_is_open = not self.causal or (self.num_queries == 1 and self.query_offset == self.num_keys - 1)
        return causal_is_open and not self.masks_by_sequence and not self._window_bites()

    def _window_bites(self) -> bool:
        return self.window is not None and self.window < self.num_keys

    def reach(self) -> slice:
        """The rows of the keys between the first and the last that any of the queries may look at."""
        start, stop = 0, self.query_offset + self.num_queries if self.causal else self.num_keys
        if self.window is not None:
            start = max(0, self.query_offset - self.window + 1)
            stop = min(stop, self.query_offset + self.num_queries - 1 + self.window)
        return slice(start, stop)

    def distance(self) -> Tensor:
        """The position of each query minus that of each key: [T,S], or [B,1,T,S] where sequences differ."""
        query, key = per_query_and_key(self.q_pos, self.k_pos)
        return query - key

    def own(self, x: Tensor, dim: int = 1) -> Tensor:
        """The rows of the queries of a tensor with a row for each key, such as `features`."""
        return x.narrow(dim, self.query_offset, self.num_queries)

    def row_distances(self) -> Tensor:
        """Rows of queries less rows of keys, from the farthest key behind to the nearest or, not causal, the
        farthest ahead."""
        end = -1 if self.causal else self.query_offset - self.num_keys
        return torch.arange(self.query_offset + self.num_queries - 1, end, -1, device=self.q_pos.device)

    def allowed(self) -> Tensor:
        """True where a query may look at a key: [T,S], or [B,1,T,S] where sequences differ."""
        row = torch.arange(self.query_offset, self.query_offset + self.num_queries, device=self.q_pos.device)[
            :, None
        ]
        column = torch.arange(self.num_keys, device=self.q_pos.device)[None, :]
        sink = None if self.sinks is None else self.sinks.columns
        allowed = sees(row, column, self.causal, self.window, sink)
        if self.keep is not None:
            allowed = allowed & self.keep[:, None, None, :]
        if self.documents is not None:
            own = self.documents[:, self.query_offset : self.query_offset + self.num_queries]
            allowed = allowed & (own[:, None, :, None] == self.documents[:, None, None, :])
        return allowed


def sees(row: Tensor, column: Tensor, causal: bool, window: int | None, sink: Tensor | None = None) -> Tensor:
    """Whether the query in a row may look at the key in a column; pointwise, for fused kernels too.

    `sink`: whether the key stays visible beyond the window.
    """
    allowed = column <= row if causal else (column == column) & (row == row)
    if window is not None:
        near = (row - column).abs() < window
        allowed = allowed & (near if sink is None else near | sink)
    return allowed


def longest_document(documents: Tensor) -> int:
    """The number of tokens of the longest document; `documents` as of `AttentionContext`."""
    return int((torch.arange(documents.shape[1], device=documents.device) - documents).max()) + 1


def per_query_and_key(q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
    """Positions in the shape in which a dense bias takes them: [T,1] and [S], or [B,1,T,1] and [B,1,1,S]."""
    if q_pos.dim() == 1 and k_pos.dim() == 1:
        return q_pos[:, None], k_pos
    q_pos = q_pos if q_pos.dim() == 2 else q_pos[None]
    k_pos = k_pos if k_pos.dim() == 2 else k_pos[None]
    return q_pos[:, None, :, None], k_pos[:, None, None, :]
