"""Transformers, decoder and encoder, from one block.

Tensors have their shape in their name: B batch, T tokens, S tokens and cached tokens, E model width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zoo.encodings.base import Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import EncodingStack, LayerEncodings
from zoo.errors import InputError
from zoo.models.attention import Attention
from zoo.models.cache import Cache, LayerCache
from zoo.models.sequence_split import GatheredRows, SequenceSplit
from zoo.models.vocabulary_loss import losses, summed_loss
from zoo.recipe import schema
from zoo.seeds import seed_of


def size_of(config: schema.ModelConfig, length: int) -> Size:
    """The size for which encodings of a model of this trained length are built."""
    shape = config.d_model, config.num_heads, config.num_layers
    given = {"width_of_head": config.head_dim, "attention_scale": config.attention_scale}
    logits_scaled = config.logit_scale != "none" and getattr(config.logit_scale, "heads", "all") == "all"
    return Size(*shape, length, config.kind == "decoder", logits_scaled=logits_scaled, **given)


def norm(config: schema.ModelConfig) -> nn.Module:
    if config.norm == "rmsnorm":
        return nn.RMSNorm(config.d_model, config.norm_eps)
    return nn.LayerNorm(config.d_model, config.norm_eps or 1e-5, bias=config.norm_bias)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh"), "relu": F.relu, "swiglu": F.silu,
    "geglu": F.gelu, "geglu_tanh": partial(F.gelu, approximate="tanh"),
}  # fmt: skip
GATED = ("swiglu", "geglu", "geglu_tanh")


class FeedForward(nn.Module):
    """Two projections around an activation, or its gated form with the same number of parameters."""

    def __init__(self, config: schema.ModelConfig):
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.gated = config.activation in GATED
        # Three matrices of 8/3 E instead of two of 4 E, rounded up to a multiple of 8.
        default = -(-8 * config.d_model // 3 // 8) * 8 if self.gated else 4 * config.d_model
        width = config.d_ff or default
        has_bias = config.bias in ("feed_forward", "all")
        self.up = nn.Linear(config.d_model, 2 * width if self.gated else width, bias=has_bias)
        self.down = nn.Linear(width, config.d_model, bias=has_bias)
        self.down.into_residual = True

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.gated:
            gate, x = x.chunk(2, -1)
            return self.down(self.activation(gate) * x)
        return self.down(self.activation(x))


NORMS = {"pre": ("norm",), "post": ("residual_norm",), "output": ("output_norm",),
         "both": ("norm", "output_norm")}  # fmt: skip
"""The norms of a sub-layer by `norm_position`: of its input, of its output, of the sum of both."""


class Block(nn.Module):
    """Attention and feed-forward, each added to the residual stream, with the norms of `norm_position`.

    With `parallel_residual` both read the residual stream before either is added, or one norm of it.
    """

    def __init__(self, config: schema.ModelConfig, first: bool = False):
        super().__init__()
        shares_norm = config.parallel_residual == "shared_norm"
        # In this order: the optimizer's state in a checkpoint is by the order of the parameters.
        for part, made in (("attention", Attention), ("feed_forward", FeedForward)):
            for place in ("norm", "output_norm", "residual_norm"):
                left_out = (first, part, place, config.first_norm) == (True, "attention", "norm", False)
                left_out |= shares_norm and (part, place) == ("feed_forward", "norm")
                has = place in NORMS[config.norm_position] and not left_out
                self.add_module(f"{part}_{place}", norm(config) if has else nn.Identity())
            self.add_module(part, made(config))
        self.dropout = nn.Dropout(config.dropout)
        self.parallel, self.shares_norm = bool(config.parallel_residual), shares_norm

    def forward(
        self,
        x_BTE: Tensor,
        layer: LayerEncodings,
        contexts: Sequence[AttentionContext],
        cache: LayerCache | None = None,
    ) -> Tensor:
        normed_BTE = self.attention_norm(x_BTE)
        attended = self.attention(normed_BTE, layer, contexts, cache)
        attended = self.dropout(self.attention_output_norm(attended))
        if self.parallel:
            return x_BTE + attended + self._transformed(normed_BTE if self.shares_norm else x_BTE)
        x_BTE = self.attention_residual_norm(x_BTE + attended)
        return self.feed_forward_residual_norm(x_BTE + self._transformed(x_BTE))

    def _transformed(self, x_BTE: Tensor) -> Tensor:
        return self.dropout(self.feed_forward_output_norm(self.feed_forward(self.feed_forward_norm(x_BTE))))


def _by_itself(
    block: Block, x_BTE: Tensor, layer: LayerEncodings, contexts: Sequence[AttentionContext]
) -> Tensor:
    """A block's output, to be computed again: of other blocks it takes what depends on positions alone."""
    shared: dict = {}
    return block(x_BTE, layer, [replace(context, shared=shared) for context in contexts])


class HeadTransform(nn.Module):
    """Dense layer, activation and norm before the output layer."""

    def __init__(self, config: schema.ModelConfig):
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model, bias=config.bias == "all")
        self.activation = ACTIVATIONS[config.activation]
        self.norm = norm(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(x)))


class Transformer(nn.Module):
    """Token ids to logits. Use `Decoder` or `Encoder`.

    Args:
        config: the recipe's `model`.
        vocab_size: number of token ids.
        length: the trained length, in tokens.
        head: `vocabulary` gives logits over tokens, [B,T,V]; `pointer` one logit for each position, [B,T].
        seed: of the initial weights.
    """

    causal: bool
    split: SequenceSplit | None = None
    """The processes that compute each sequence together, in evaluation; None where each computes its own."""

    def __init__(
        self,
        config: schema.ModelConfig,
        vocab_size: int,
        length: int,
        head: Literal["vocabulary", "pointer"] = "vocabulary",
        seed: int = 0,
    ):
        super().__init__()
        self.num_layers = config.num_layers
        self.checkpointing = config.gradient_checkpointing
        self.windows = [config.window_of(layer) for layer in range(config.num_layers)]
        self.sink_tokens = config.sink_tokens
        size = size_of(config, length)
        self.encoding = EncodingStack(config.encoding, size, seed)
        for one in (encoding for slot in self.encoding.slots for encoding in slot):
            if self.sink_tokens and one.uses("output") and one.reads_positions:
                raise InputError(
                    f"encoding {one.name!r} changes outputs by the position of the query, which differs "
                    f"for sink tokens: leave out model.sink_tokens"
                )
        # Not drawn by torch: `draw_initial` does.
        self.tokens = nn.Embedding.from_pretrained(torch.empty(vocab_size, config.d_model), freeze=False)
        scale = config.embedding_scale
        self.token_scale = config.d_model**0.5 if scale == "sqrt_d_model" else scale
        self.embedding_norm = norm(config) if config.embedding_norm else nn.Identity()
        self.norms_positions = config.embedding_norm == "with_positions"
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, layer == 0) for layer in range(config.num_layers))
        # A sum that was normalised last is not normalised again.
        self.final_norm = nn.Identity() if config.norm_position == "post" else norm(config)
        self.head_transform = HeadTransform(config) if config.head_transform else nn.Identity()
        self.head_scale = config.unembedding_scale
        self.pointer = head == "pointer"
        if self.pointer:
            self.head: nn.Linear | None = nn.Linear(config.d_model, 1, bias=False)
        elif config.tie_embeddings:
            self.head = None
        else:
            self.head = nn.Linear(config.d_model, vocab_size, bias=False)
        # A pointer's softmax over positions would not change with it.
        has_bias = config.head_transform and not self.pointer
        self.head_bias = nn.Parameter(torch.zeros(vocab_size)) if has_bias else None
        draw_initial(self, seed, config.num_layers, config.init_std)

    def forward(
        self,
        tokens: Tensor,
        keep: Tensor | None = None,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        wanted: Tensor | None = None,
        targets: Tensor | None = None,
        reduction: Literal["sum", "none"] = "sum",
        documents: Tensor | None = None,
    ) -> Tensor:
        """Logits for token ids [B,T].

        Args:
            tokens: [B,T], int64.
            keep: [B,T], False at padding, which no token sees and which has no position.
            cache: earlier tokens; these are appended.
            positions: [T] or [B,T]; by default 0, 1, 2 ..., after those in the cache.
            wanted: [B,T], True at the N positions whose logits to return, as [N,V], row by row.
            targets: [B,T], token ids to predict, -100 to ignore. If given, returns the losses in nats; the
                full logits are never held.
            reduction: of these losses: `sum` for training, or `none`, [B,T], for evaluation.
            documents: [B,T], the row in which the document of each token begins, to read each document by
                itself: a token sees its own document, whose first token has position 0. Without padding and
                cache.

        Raises:
            ValueError: not [B,T], longer than the encoding can take, or longer than it can take with a cache.
        """
        hidden = self.hidden(tokens, keep, cache, positions, documents)
        if targets is not None:
            weight = self.tokens.weight if self.head is None else self.head.weight
            hidden = self._to_head(hidden)
            if self.head_bias is not None:
                # One more column, and more zeros so that the width stays a multiple of 8 for fast products.
                weight = torch.cat((weight, F.pad(self.head_bias[:, None], (0, 7))), 1)
                hidden = F.pad(hidden, (0, 8), value=1.0)
            return (summed_loss if reduction == "sum" else losses)(hidden, weight, targets)
        return self.unembed(hidden if wanted is None else hidden[wanted])

    def unembed(self, hidden: Tensor) -> Tensor:
        """Logits from the output of `hidden` or part of it: [...,E] to [...,V], or to [...] for a pointer."""
        hidden = self._to_head(hidden)
        if self.head is None:
            return F.linear(hidden, self.tokens.weight, self.head_bias)
        logits = self.head(hidden)
        if self.pointer:
            return logits.squeeze(-1)
        return logits if self.head_bias is None else logits + self.head_bias

    def _to_head(self, hidden: Tensor) -> Tensor:
        hidden = self.head_transform(hidden)
        return hidden if self.head_scale == 1.0 else hidden * self.head_scale

    def hidden(
        self,
        tokens: Tensor,
        keep: Tensor | None = None,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        all_layers: bool = False,
    ) -> Tensor:
        """The normalised output of the last layer, [B,T,E]; arguments as in `forward`.

        With `all_layers`, what enters each layer and then this output: [layers + 1,B,T,E].
        """
        if tokens.dim() != 2 or tokens.numel() == 0:
            raise ValueError(f"tokens are [batch, length], one or more of each, not {list(tokens.shape)}")
        contexts = self.encoding.contexts(
            *tokens.shape, tokens.device, keep, cache, positions, documents, tokens
        )
        in_windows = {None: contexts} | {
            window: [[context.in_window(window, self.sink_tokens) for context in slot] for slot in contexts]
            for window in self.windows
            if window is not None
        }
        split = None if all_layers or cache is not None else self.split
        if split is not None and tokens.shape[1] >= 2 * split.size:
            return self._hidden_of_split(split, tokens, in_windows)
        x_BTE = self._embedded(tokens, contexts)
        entering = []
        for index, block in enumerate(self.blocks):
            entering.append(x_BTE)
            layer = self.encoding.layer(index)
            past_layer = None if cache is None else cache.layers[index]
            layer_contexts = self.encoding.instances_of_layer(in_windows[self.windows[index]], index)
            if self.checkpointing and cache is None and torch.is_grad_enabled():
                x_BTE = checkpoint(_by_itself, block, x_BTE, layer, layer_contexts, use_reentrant=False)
            else:
                x_BTE = block(x_BTE, layer, layer_contexts, past_layer)
        x_BTE = self.final_norm(x_BTE)
        return torch.stack([*entering, x_BTE]) if all_layers else x_BTE

    def _embedded(self, tokens: Tensor, contexts: Sequence[Sequence[AttentionContext]]) -> Tensor:
        """The token vectors that enter the first layer, [B,T,E]."""
        x_BTE = self.tokens(tokens)
        if self.token_scale != 1.0:
            x_BTE = x_BTE * self.token_scale
        if self.norms_positions:
            x_BTE = self.embedding_norm(self.encoding.embed(x_BTE, contexts))
        else:
            x_BTE = self.encoding.embed(self.embedding_norm(x_BTE), contexts)
        return self.dropout(x_BTE)

    def _hidden_of_split(
        self,
        split: SequenceSplit,
        tokens: Tensor,
        in_windows: dict[int | None, list[list[AttentionContext]]],
    ) -> Tensor:
        """`hidden` by several processes, which all get all rows; `in_windows` has contexts by window."""
        length, limit = tokens.shape[1], self.encoding.max_cached_length
        # Where a rotation depends on the full length, each query needs all keys.
        all_keys = limit is not None and length > limit
        parts = []
        for blocks in split.rounds(length, 2 if self.causal and not all_keys else 1):
            own, memo = blocks[split.rank], {"shared": {}, "fixed": {}}
            contexts = {
                window: [
                    [replace(one.queries(own.start, own.stop, all_keys), **memo) for one in slot]
                    for slot in slots
                ]
                for window, slots in in_windows.items()
            }
            parts.append((blocks, contexts, self._embedded(tokens[:, own], contexts[None])))
        for index, block in enumerate(self.blocks):
            layer, rows = self.encoding.layer(index), GatheredRows(split, length)
            for number, (blocks, contexts, x_BTE) in enumerate(parts):
                layer_contexts = self.encoding.instances_of_layer(contexts[self.windows[index]], index)
                rows.begin(blocks, layer_contexts[0].num_keys)
                parts[number] = blocks, contexts, block(x_BTE, layer, layer_contexts, rows)
        return torch.cat([split.gather(self.final_norm(x), 1, blocks) for blocks, _, x in parts], 1)

    @torch.no_grad()
    def attention(self, tokens: Tensor, keep: Tensor | None = None) -> Tensor:
        """The attention weights by layer and head, [layers,B,H,T,T], in float32: the row of a query sums to
        one, that of padding may be zero. They are exact for every encoding and kernel, and without
        gradients; the memory grows with the square of the length.

        Args:
            tokens, keep: as in `forward`.

        Raises:
            ValueError: not [B,T], or longer than the encoding can take.
        """
        weights: list[Tensor] = []

        def keep_weights(attention: Attention, given: tuple[Any, ...]) -> None:
            weights.extend(table for _, table in attention.weight_blocks(*given[:3], rows=tokens.shape[1]))

        handles = [block.attention.register_forward_pre_hook(keep_weights) for block in self.blocks]
        try:
            self.hidden(tokens, keep)
        finally:
            for handle in handles:
                handle.remove()
        return torch.stack(weights)


class Decoder(Transformer):
    """Each token sees itself and those before it."""

    causal = True


class Encoder(Transformer):
    """Each token sees all tokens."""

    causal = False


def draw_initial(model: nn.Module, seed: int, num_layers: int, weight_std: float | Literal["auto"]) -> None:
    """Set the parameters of a transformer (not those of its encodings) to their start.

    Weights are N(0, weight_std^2), with `auto` N(0, 1/columns) for a matrix [rows, columns]; GPT-2 has 0.02
    at any width. As in GPT-2, a projection back into the residual stream is divided by sqrt(2 layers), so
    that the stream's variance does not grow with depth. Gains start at one and offsets at zero; a module
    whose vectors start from something else says so by `starts_from`. Each is drawn from its own generator,
    seeded by (seed, parameter name): two models that differ in their encoding share every other initial
    weight, bit for bit.
    """
    for module_name, module in model.named_modules():
        for name, parameter in module.named_parameters(module_name, recurse=False):
            if name.startswith("encoding.") or parameter.is_meta:
                continue
            with torch.no_grad():
                if parameter.dim() < 2:
                    usual = 1.0 if name.endswith("weight") else 0.0
                    parameter.fill_(getattr(module, "starts_from", usual))
                    continue
                std = parameter.shape[-1] ** -0.5 if weight_std == "auto" else weight_std
                if getattr(module, "into_residual", False):
                    std /= (2 * num_layers) ** 0.5
                generator = torch.Generator().manual_seed(seed_of(seed, name))
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
