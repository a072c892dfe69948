"""The hooks through which a token's position enters a transformer.

A positional encoding is a `torch.nn.Module` that overrides the hooks it needs and leaves the others alone.
The transformer calls all of them and names no encoding. In the order of a forward pass:

    positions -> embed -> read -> values, rotate -> bias, score -> logits -> weights -> value -> output

Shapes are named by letters: B batch, T queries, S keys, H heads, D head width, E model width. Without a cache
T = S; while decoding with one the S keys are the T new tokens and all earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.encodings.context import AttentionContext, per_query_and_key
from zoo.seeds import mixed


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
    attention_scale: float | None = None
    """Where `scale` is not 1/sqrt(head_dim)."""
    logits_scaled: bool = False
    """Whether the logits of heads with positions have a factor of each query (`model.logit_scale`)."""
    first_head: int = 0
    """The number of the model's heads before its own."""

    @property
    def head_dim(self) -> int:
        return self.width_of_head or self.d_model // self.num_heads

    @property
    def scale(self) -> float:
        """The factor of the products of queries and keys."""
        return self.attention_scale or self.head_dim**-0.5


class Encoding(nn.Module):
    """A positional encoding: the base class of every plugin, and by itself the encoding that does nothing.

    A plugin's constructor takes the `Size` first; its further, typed, keyword-only parameters are the options
    that a recipe may give. Their defaults are literals, so that recipes are checked by reading the file. An
    option that cannot be, or cannot go with the size, raises ValueError there.
    """

    # What it is.
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
    replaces: ClassVar[tuple[str, ...]] = ()
    """Encodings that it may replace in a trained model. It is for that alone: no model is trained with it."""
    after_training: ClassVar[tuple[str, ...]] = ()
    """Options that may be changed on a trained model: no parameter depends on them."""

    # What it claims; the laws try it.
    relative: ClassVar[bool] = False
    """Moving all positions by the same amount changes nothing."""
    extrapolates: ClassVar[Literal["yes", "no", "policy"]] = "no"
    """Beyond the trained length. yes: published results claim that it works; no: it is defined there and no
    more is claimed; policy: it is not defined there, and an option chooses a substitute."""
    distance_only: ClassVar[bool] = False
    """The bias depends on query position minus key position alone, so a table over distances can hold it."""
    fused: ClassVar[bool] = True
    """The bias is arithmetic and indexing, point by point, so that a fused kernel can compute it."""
    rotation_is_final: bool = False
    """`rotate` of a query or key depends on its own position and features alone: while decoding, a key is
    rotated once."""
    lacks_offset: bool = False
    """Scores are defined up to a number per head, which a softmax ignores."""

    # What it needs.
    reads_positions: bool = True
    """Position ids. False if the mask, or the rows, alone give the order."""
    reads_tokens: bool = False
    """Token ids, as a third argument of `positions`."""
    integer_positions: bool = False
    """Integer position ids and, if it is absolute, none below 0."""
    needs_offset: bool = True
    """Scores that are complete, if it overrides `weights`: these depend on a number per head, and do not
    learn it themselves."""

    # How it is stored.
    per_layer: bool = False
    """Each layer owns an instance. May be set on the instance, by an option or by a wrapped encoding."""
    weight_matrices: ClassVar[tuple[str, ...]] = ()
    """Own parameters that are the matrix of a linear map: they decay as the weights of `nn.Linear` do. Tables
    with a row for each position, distance or bucket do not, in `nn.Embedding` either."""

    # Set by wrappers and by training.
    position_key: Hashable = None
    """Instances in different layers with the same key, if it is not None, have the same positions:
    `positions` is called on the first of them only."""
    head_groups: tuple[int, ...] = ()
    """The numbers of heads that have an encoding each, where not all heads have the same."""
    seeds: Tensor | None = None
    """Of `random`, in a training: the seed that all sequences share, then one for each."""

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

    def random(self, batch: int | None, count: int, device: torch.device) -> Tensor:
        """Uniform numbers in [0, 1), for `positions` in training.

        In a run they depend on seed, step, layer and sequence alone: they are the same on any number of
        devices. A second call in the same step returns the same. Elsewhere torch's generator draws them.

        Args:
            batch: the sequences, each with numbers of its own: [batch, count]. None: all share them, [count].
        """
        if self.seeds is None:
            return torch.rand((count,) if batch is None else (batch, count), device=device)
        columns = mixed(torch.arange(1, count + 1, device=device))
        words = mixed(columns ^ (self.seeds[0] if batch is None else self.seeds[1:, None]))
        return (words >> 8) * 2.0**-24

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """Token vectors [B,T,E] and their positions to the token vectors that enter the first layer."""
        return x

    def read(self, x: Tensor) -> Tensor | None:
        """Features of each token, such as gates, [B,T,...], from a layer's normalised input x [B,T,E].

        Kept in the cache with the token's key, and passed to later hooks as `context.features`.
        """
        return None

    def values(self, v: Tensor, context: AttentionContext) -> Tensor:
        """Values [B,H,S,D] of all keys as projected, to those that attention sums. The width stays.

        `context.previous(v)` has those of the token before. The cache holds the values as projected.
        """
        return v

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
            return line.expand(num_heads, -1).unfold(-1, context.num_keys, 1).flip(-2)
        q, k = per_query_and_key(context.q_pos, context.k_pos)
        table = self.bias(head[:, None, None], q, k)
        return table.expand(*table.shape[:-3], num_heads, -1, -1)

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

    def output(self, out: Tensor, context: AttentionContext) -> Tensor:
        """Outputs of the heads [B,H,T,D] to those that are projected together. The width stays.

        Features of the queries are `context.own(context.features)`. With `reads_positions` the encoding takes
        no sink tokens, which a query sees from another position.
        """
        return out


def softmax(logits: Tensor) -> Tensor:
    """Softmax over the keys; 0 for a query that may see no key."""
    # Rows without a visible key would give NaN, and so would their gradient: fill them before and after the
    # softmax. A CPU tests for such rows first; on a GPU the test would synchronize.
    masked = logits.detach().amax(-1, keepdim=True) == -torch.inf
    known = logits.device.type == "cpu" and not torch.compiler.is_compiling()
    if known and not masked.any():
        return logits.softmax(-1)
    return logits.masked_fill(masked, 0.0).softmax(-1).masked_fill(masked, 0.0)


def positions_by_document(encoding: Encoding, ids: Tensor, tokens: Tensor | None = None) -> Tensor:
    """The positions [B,T] of separate documents, whose `ids` [B,T] begin with 0: each is a sequence."""
    # The shapes depend on the documents. As a decorator it would import torch's compiler with this module.
    return torch.compiler.disable(_positions_by_document)(encoding, ids, tokens)


def _positions_by_document(encoding: Encoding, ids: Tensor, tokens: Tensor | None) -> Tensor:
    document = (ids == 0).flatten().cumsum(0).view_as(ids) - 1
    lengths = document.flatten().bincount()
    rows = torch.arange(int(lengths.max()), device=ids.device).minimum(lengths[:, None] - 1)
    given: tuple[Tensor, ...] = ()
    if encoding.reads_tokens:
        given = (torch.full_like(rows, -1).index_put((document, ids), tokens),)
    return encoding.positions(rows, len(lengths), *given).expand_as(rows)[document, ids]


def shortest(encodings: Iterable[Encoding], limit: str) -> int | None:
    """The smallest `max_length` (or another limit of lengths) of encodings; None if none has one."""
    # Neither one comprehension nor min(..., default=None): torch.compile cannot follow them.
    limits = [getattr(one, limit) for one in encodings]
    limits = [length for length in limits if length is not None]
    return min(limits) if limits else None
