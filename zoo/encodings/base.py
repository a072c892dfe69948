"""The hooks through which a token's position enters a transformer.

A positional encoding is a `torch.nn.Module` that overrides the hooks it needs and leaves the others alone.
The transformer calls all of them and names no encoding. In the order of a forward pass:

    positions -> embed -> read -> rotate -> bias, score -> logits -> weights -> value

Shapes are named by letters: B batch, T queries, S keys, H heads, D head width, E model width. Without a cache
T = S; while decoding with one the S keys are the T new tokens and all earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Made = TypeVar("Made")


@dataclass(frozen=True)
class Size:
    """The model that an encoding is built for. `length` is the trained length in tokens."""

    d_model: int
    num_heads: int
    num_layers: int
    length: int
    causal: bool
    layer: int | None = None
    """Which layer this instance serves; 0 also for the one that serves them all."""
    width_of_head: int | None = None
    """Where it is not d_model / num_heads."""

    @property
    def head_dim(self) -> int:
        return self.width_of_head or self.d_model // self.num_heads


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
    """Values computed once in a forward pass and used by every layer; see `once`."""
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
        """The same queries as they look at the sinks. Values of keys are computed anew."""
        return replace(self, q_pos=self.sinks.q_pos, consecutive=False, layer_cache=None)

    def queries(self, start: int, stop: int) -> AttentionContext:
        """The queries in rows start..stop, and the keys that any of them may look at."""
        keys = self.query_offset + stop if self.causal else self.num_keys
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
            None if x is None else x[:, self.query_offset :]
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
        """make(at), computed by the first layer of this forward pass that asks and kept for the others."""
        made = self.shared.setdefault(("once", owner), [])
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

    def only_causal_mask(self) -> bool:
        """Whether the causal mask is all there is."""
        return self.causal and not self.masks_by_sequence and not self._window_bites()

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

    def distances(self) -> Tensor:
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


class Encoding(nn.Module):
    """A positional encoding: the base class of every plugin, and by itself the encoding that does nothing.

    A plugin's constructor takes the `Size` first; its further, typed, keyword-only parameters are the options
    that a recipe may give. Their defaults are literals, so that recipes are checked by reading the file. An
    option that cannot be, or cannot go with the size, raises ValueError there.
    """

    paper: ClassVar[str] = ""
    """Authors, year and number of the paper that defines it."""
    formula: ClassVar[str] = ""
    """The formula in LaTeX, shown on its documentation page: a score a_ij of query i and key j, the bias
    b_ij that is added to q_i . k_j / sqrt(D), or what becomes of a token vector x or of positions p."""
    family: ClassVar[str] = ""
    """How it enters the model: absolute, position ids, rotary, bias, content, contextual, weights or
    schedule."""
    decoder: ClassVar[bool] = True
    encoder: ClassVar[bool] = True
    relative: ClassVar[bool] = False
    """Claims that moving all positions by the same amount changes nothing."""
    extrapolates: ClassVar[Literal["yes", "no", "policy"]] = "no"
    """Beyond the trained length. yes: published results claim that it works; no: it is defined there and no
    more is claimed; policy: it is not defined there, and an option chooses a substitute."""
    distance_only: ClassVar[bool] = False
    """The bias depends on query position minus key position alone, so a table over distances can hold it."""
    fused: ClassVar[bool] = True
    """Its bias is arithmetic and indexing, point by point, so that a fused kernel can compute it."""
    after_training: ClassVar[tuple[str, ...]] = ()
    """Options that may be changed on a trained model: no parameter depends on them."""
    replaces: ClassVar[tuple[str, ...]] = ()
    """Encodings that it may replace in a trained model. It is for that alone: no model is trained with it."""
    reads_positions: bool = True
    """Whether it depends on position ids. False if the mask, or the rows, alone give the order."""
    reads_tokens: bool = False
    """`positions` takes the token ids too, as a third argument."""
    integer_positions: bool = False
    """It looks positions or distances up, or rounds them: only integers have a meaning and, if it is
    absolute, none below 0."""
    position_key: Hashable = None
    """Instances in different layers with the same key, if it is not None, have the same positions:
    `positions` is called on the first of them only."""
    lacks_offset: bool = False
    """Its scores leave out a number of each head, added to all its scores, which a softmax ignores."""
    needs_offset: bool = True
    """Whether its `weights`, if it overrides them, depend on such a number and do not learn it themselves."""
    rotation_is_final: bool = False
    """`rotate` of a query or key depends on its own position and features alone: while decoding, a key is
    rotated once."""
    weight_matrices: ClassVar[tuple[str, ...]] = ()
    """Own parameters that are the matrix of a linear map: they decay as the weights of `nn.Linear` do. Tables
    with a row for each position, distance or bucket do not, in `nn.Embedding` either."""
    per_layer: bool = False
    """Each layer owns an instance. May be set on the instance, by an option or by a wrapped encoding."""
    head_groups: tuple[int, ...] = ()
    """The numbers of heads that have an encoding each, where not all heads have the same."""

    def __init__(self, size: Size):
        super().__init__()
        self.size = size
        self._values_on_meta: dict[str, Tensor] = {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Encoding:
        """Moves to another device; buffers outside the state dict keep their precision and their values.

        In bf16 a frequency is off by up to 0.2 %, which at position 2000 is half a turn. On the meta device
        nothing has values: they are kept here, and come back when memory is given (`to_empty`).
        """
        tables = {name: self._buffers[name] for name in self._non_persistent_buffers_set}
        super()._apply(fn, recurse)
        for name, table in tables.items():
            after = self._buffers[name]
            if table is None or after is None:
                continue
            if after.is_meta:
                self._values_on_meta.setdefault(name, table)
            else:
                table = self._values_on_meta.pop(name, table)
            self._buffers[name] = table.to(after.device)
        return self

    @classmethod
    def size_inside(cls, size: Size, options: Mapping[str, Any], index: int) -> Size:
        """The size of the model that a wrapped encoding is built for, from this one's size and options.

        `index` is its place in the option's list, 0 where there is none.
        """
        return size

    @property
    def max_length(self) -> int | None:
        """The longest sequence it can take, in tokens; None where there is no such limit."""
        return None

    @property
    def max_cached_length(self) -> int | None:
        """The longest sequence that may be decoded with a key/value cache, in tokens; None for any.

        The limit of an encoding whose positions depend on the length of the full sequence, which is not known
        while decoding.
        """
        return None

    @property
    def num_positions(self) -> int | None:
        """The number of distinct positions, from 0; None if there is no limit."""
        return None

    @property
    def heads_with_positions(self) -> tuple[bool, ...]:
        """For each head, whether it depends on position ids."""
        return (self.reads_positions,) * self.size.num_heads

    def uses(self, hook: str) -> bool:
        """Whether the hook does anything here. Wrappers answer for the wrapped encoding.

        `bias_table` is `bias` for all pairs at once: who overrides either uses `bias`.
        """
        same = ("bias", "bias_table") if hook == "bias" else (hook,)
        return any(getattr(type(self), one) is not getattr(Encoding, one) for one in same)

    def positions(self, ids: Tensor, batch: int) -> Tensor:
        """Position ids to use instead of the default `ids` [T] or [B,T]: float or int, [T] or [B,T].

        They are this instance's own: no other encoding of the model sees them. Called once a forward pass,
        for the new tokens only if there is a cache; `self.training` distinguishes training from evaluation.
        Separate documents come as sequences of a batch, the shorter ones with padding on the right, whose
        position is that of the last token.

        With `reads_tokens` a third argument `tokens` [B,S] has the ids of all tokens so far, the new ones at
        the end, and -1 at padding. It is None where an encoding is shown without a model.
        """
        return ids

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """Token vectors [B,T,E] and their positions to the token vectors that enter the first layer."""
        return x

    def read(self, x: Tensor) -> Tensor | None:
        """Features of each token, such as gates, [B,T,...], from a layer's normalised input x [B,T,E].

        Kept in the cache with the token's key, and passed to later hooks as `context.features`.
        """
        return None

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """Queries [B,H,T,D] and keys [B,H,S,D], rotated. The width may change."""
        return q, k

    def bias(self, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """The term added to the scaled score of a head, for a query position and a key position.

        Pointwise: the three broadcast against one another. It is called with `[H,1,1]`, `[T,1]`, `[S]` to
        fill a dense table and with scalars inside a fused kernel, so it may index and compute but not
        reshape.
        """
        raise NotImplementedError

    def bias_table(self, context: AttentionContext, num_heads: int) -> Tensor:
        """The bias of all queries and keys, [H,T,S] or [B,H,T,S], in float32.

        By default, `bias` of every pair, or of every distance if `distance_only`. An encoding whose bias is
        not pointwise may override this instead of `bias`, and is then not `fused`.
        """
        head = torch.arange(num_heads, device=context.q_pos.device)
        if self.distance_only and context.consecutive:
            # Each diagonal holds one value: compute T + S - 1 of them and lay them out, instead of T times S.
            farthest = context.query_offset + context.num_queries - 1
            distance = torch.arange(farthest, context.query_offset - context.num_keys, -1, device=head.device)
            line = self.bias(head[:, None], distance, torch.zeros_like(distance))
            return line.unfold(-1, context.num_keys, 1).flip(-2)
        q, k = per_query_and_key(context.q_pos, context.k_pos)
        return self.bias(head[:, None, None], q, k)

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor | None:
        """The term added to the scaled scores that depends on content: broadcastable to [B,H,T,S].

        q and k are as projected, before any encoding rotated them.
        """
        return None

    def key_score(self, k: Tensor, context: AttentionContext) -> Tensor | None:
        """The sum of `bias` and `score` as a number of each key, up to a number of each query.

        [B,H,1,S] in float32, B and H may be 1; None where there is no such form. Softmax ignores a term
        that all keys of a query share, and a kernel that adds one row to all scores needs no table of them.
        Not called in a layer where an encoding overrides `weights`. k is as projected.
        """
        return None

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """The scores so far, [B,H,T,S], every term added and the mask not yet applied, to new ones.

        q and k are as projected, before any encoding rotated them.
        """
        return logits

    def weights(self, logits: Tensor, context: AttentionContext) -> Tensor:
        """Attention weights [B,H,T,S] from logits that are -inf where a query may not see a key.

        By default a softmax. At most one encoding of a layer overrides it. No weight is negative, those of
        logits -inf are 0, and a row may sum to less than one.
        """
        return softmax(logits)

    def value(self, weights: Tensor, context: AttentionContext) -> Tensor | None:
        """The term added to a head's output [B,H,T,D], from the attention weights [B,H,T,S]."""
        return None


def softmax(logits: Tensor) -> Tensor:
    """Softmax over the keys; 0 for a query that may see no key."""
    # Rows without a visible key would give NaN, and so would their gradient: fill them before and after the
    # softmax. A CPU tests for such rows first; on a GPU the test would synchronize.
    masked = logits.detach().amax(-1, keepdim=True) == -torch.inf
    known = logits.device.type == "cpu" and not torch.compiler.is_compiling()
    if known and not masked.any():
        return logits.softmax(-1)
    return logits.masked_fill(masked, 0.0).softmax(-1).masked_fill(masked, 0.0)


@torch.compiler.disable  # the shapes depend on the documents
def positions_by_document(encoding: Encoding, ids: Tensor, tokens: Tensor | None = None) -> Tensor:
    """The positions [B,T] of separate documents, whose `ids` [B,T] begin with 0: each is a sequence."""
    document = (ids == 0).flatten().cumsum(0).view_as(ids) - 1
    lengths = document.flatten().bincount()
    rows = torch.arange(int(lengths.max()), device=ids.device).minimum(lengths[:, None] - 1)
    given: tuple[Tensor, ...] = ()
    if encoding.reads_tokens:
        given = (torch.full_like(rows, -1).index_put((document, ids), tokens),)
    return encoding.positions(rows, len(lengths), *given).expand_as(rows)[document, ids]


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
