"""Multi-head attention around the encodings' hooks.

Tensors have their shape in their name: B batch, T queries, S keys, H query heads, G key heads, D head width,
E model width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings
from zoo.models.cache import LayerCache
from zoo.models.logit_scale import LogitScale, logit_scale_of
from zoo.models.plans.reference import attention_weights
from zoo.models.scores import ScoreTerms
from zoo.recipe import schema


class Attention(nn.Module):
    """Self-attention with one projection for queries, keys and values, and optionally fewer key heads.

    From [B,T,E] to [B,T,E]. With a cache, the S keys are those of all tokens so far.
    """

    def __init__(self, config: schema.ModelConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.num_kv_heads = config.num_kv_heads or config.num_heads
        self.head_dim = config.head_dim or config.d_model // config.num_heads
        self.kernel = config.kernel
        rows = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        self.qkv = nn.Linear(config.d_model, rows, bias=config.bias in ("qkv", "attention", "all"))
        columns, has_bias = self.num_heads * self.head_dim, config.bias in ("attention", "all")
        self.out = nn.Linear(columns, config.d_model, bias=has_bias)
        self.out.into_residual = True
        self.scale = config.attention_scale or self.head_dim**-0.5
        self.q_norm, self.k_norm = (
            nn.RMSNorm(self.head_dim * (heads if config.qk_norm == "across_heads" else 1), config.norm_eps)
            if config.qk_norm
            else None
            for heads in (self.num_heads, self.num_kv_heads)
        )
        self.logit_scale = logit_scale_of(config)
        shares = 2 * self.num_kv_heads
        self.kv_shift = nn.Linear(config.d_model, shares, bias=False) if config.kv_shift else None
        norm = HeadNorm(self.num_heads, self.head_dim, config.norm_eps) if config.head_norm else None
        self.head_norm = norm
        self.output_gate: nn.Linear | None = None
        if config.output_gate:
            width = {"headwise": self.num_heads, "elementwise": columns}[config.output_gate]
            self.output_gate = nn.Linear(config.d_model, width, bias=False)

    def forward(
        self,
        x_BTE: Tensor,
        layer: LayerEncodings,
        contexts: Sequence[AttentionContext],
        cache: LayerCache | None = None,
    ) -> Tensor:
        """`contexts`: one for each encoding of the layer."""
        from zoo.models.plans.choose import attend  # imports torch's compiler

        q_BHTD, k_BHSD, v_BHSD, scores = self._project(x_BTE, layer, contexts, cache)
        out_BHTD = attend(q_BHTD, k_BHSD, v_BHSD, scores, self.scale, self.kernel)
        out_BTHD = layer.output(out_BHTD, scores.contexts).transpose(1, 2)
        if self.head_norm is not None:
            out_BTHD = self.head_norm(out_BTHD)
        if self.output_gate is not None:
            # Gated attention (Qiu et al. 2025, arXiv:2505.06708), in the place that they call G1.
            gate_BTHD = self.output_gate(x_BTE).sigmoid().unflatten(-1, (self.num_heads, -1))
            out_BTHD = out_BTHD * gate_BTHD
        return self.out(out_BTHD.flatten(2))

    def weight_blocks(
        self, x_BTE: Tensor, layer: LayerEncodings, contexts: Sequence[AttentionContext], rows: int
    ) -> Iterator[tuple[AttentionContext, Tensor]]:
        """Attention weights for the arguments of `forward`, `rows` queries at a time: their context, with the
        keys up to the last that any of them may see, and their weights [B,H,rows,S]. Memory grows with the
        length, not with its square."""
        q_BHTD, k_BHSD, _, scores = self._project(x_BTE, layer, contexts, None)
        for start in range(0, q_BHTD.shape[2], rows):
            part = scores.queries(start, min(start + rows, q_BHTD.shape[2]))
            seen_BHSD = k_BHSD[:, :, : part.context.num_keys]
            some_BHTD = q_BHTD[:, :, start : start + rows]
            yield part.context, attention_weights(some_BHTD, seen_BHSD, part, self.scale)

    def _project(
        self,
        x_BTE: Tensor,
        layer: LayerEncodings,
        contexts: Sequence[AttentionContext],
        cache: LayerCache | None,
    ) -> tuple[Tensor, Tensor, Tensor, ScoreTerms]:
        """Queries and keys as they are multiplied, values, and the terms added to the products."""
        # [B,T,H+2G,D] split by heads, and only then [B,H,T,D]: the way back is one copy.
        qkv = self.qkv(x_BTE).unflatten(-1, (-1, self.head_dim))
        if self.kv_shift is not None:
            q_BTHD, kv_BTND = qkv.tensor_split((self.num_heads,), 2)
            qkv = torch.cat((q_BTHD, self._shifted(kv_BTND, x_BTE, contexts[0], cache)), 2)
        parts = qkv.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), 2)
        if self.q_norm is not None and self.k_norm is not None:
            parts = _normed(self.q_norm, parts[0]), _normed(self.k_norm, parts[1]), parts[2]
        q_BHTD, k_BGSD, v_BGSD = (part.transpose(1, 2) for part in parts)
        return encoded(q_BHTD, k_BGSD, v_BGSD, x_BTE, layer, contexts, cache, self.logit_scale)

    def _shifted(
        self, kv_BTND: Tensor, x_BTE: Tensor, context: AttentionContext, cache: LayerCache | None
    ) -> Tensor:
        """Keys and values, N = 2G, mixed with those of the token before (FoX (Pro), arXiv:2503.02130)."""
        before = None if cache is None else cache.row_before("last keys and values", kv_BTND, 1)
        before_BTND = context.previous(kv_BTND, 1, before)
        share_BTN1 = self.kv_shift(x_BTE).sigmoid()[..., None]
        return torch.lerp(kv_BTND, before_BTND, share_BTN1)


class HeadNorm(nn.RMSNorm):
    """Each head divided by its root mean square, times a gain of each channel of each head."""

    def __init__(self, heads: int, width: int, eps: float | None):
        super().__init__(heads * width, eps)

    def forward(self, x_BTHD: Tensor) -> Tensor:
        normed_BTHD = F.rms_norm(x_BTHD, x_BTHD.shape[-1:], eps=self.eps)
        return (normed_BTHD * self.weight.view(x_BTHD.shape[-2:])).to(x_BTHD.dtype)


def _normed(norm: nn.RMSNorm, x_BTHD: Tensor) -> Tensor:
    """Heads normalised each by itself, or all of a token together, by the width of the norm."""
    width = norm.normalized_shape[0]
    return norm(x_BTHD.flatten(2).unflatten(-1, (-1, width))).to(x_BTHD.dtype).view_as(x_BTHD)


def encoded(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSD: Tensor,
    x_BTE: Tensor | None,
    layer: LayerEncodings,
    contexts: Sequence[AttentionContext],
    cache: LayerCache | None = None,
    logit_scale: LogitScale | None = None,
) -> tuple[Tensor, Tensor, Tensor, ScoreTerms]:
    """Projections of new tokens as a layer's encodings change them, and the terms added to their products.

    Args:
        q_BHTD, k_BGSD, v_BGSD: of the new tokens; the cache has the earlier ones.
        x_BTE: the source of their projections; None only if no encoding has features.
        contexts: one for each encoding of the layer.

    Returns: queries [B,H,T,D] and keys [B,H,S,D] as they are multiplied, values [B,H,S,D] as they are
        summed, the terms.
    """
    read = layer.read(x_BTE)
    if cache is not None:
        v_BGSD = cache.append("values", v_BGSD, -2)
        read = [None if r is None else cache.append(("read", i), r, 1) for i, r in enumerate(read)]
    kept = LayerCache(q_BHTD.shape[2]) if cache is None else cache
    contexts = [
        replace(context, features=r, layer_cache=kept) for context, r in zip(contexts, read, strict=True)
    ]
    sinks = contexts[0].sinks if layer.rotates_by_position else None
    groups = q_BHTD.shape[1] // k_BGSD.shape[1]
    content: tuple[Tensor, Tensor] | None = None
    if cache is not None and layer.rotation_is_final and groups == 1:
        # Rotated once and kept so; a rotation may differ between the heads that share a key.
        if layer.reads_content:
            content = q_BHTD, cache.append("keys", k_BGSD, -2)
        turned = layer.rotate(q_BHTD, k_BGSD, [context.own_keys() for context in contexts])
        k_BHSD, v_BHSD = cache.append("rotated keys", turned[1], -2), v_BGSD
        if sinks is not None:
            far = [context.toward_sinks().own_keys() for context in contexts]
            far_BHTD = layer.rotate(q_BHTD, k_BGSD, far)[0]
        q_BHTD = turned[0]
    else:
        if cache is not None:
            k_BGSD = cache.append("keys", k_BGSD, -2)
        k_BHSD, v_BHSD = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (k_BGSD, v_BGSD))
        content = q_BHTD, k_BHSD
        q_BHTD, k_BHSD = layer.rotate(q_BHTD, k_BHSD, contexts)
        if sinks is not None:
            far_BHTD = layer.rotate(*content, [context.toward_sinks() for context in contexts])[0]
    if sinks is not None:
        # A product with a sink is that of the second half, another that of the first.
        keys_S1 = sinks.keys[..., None] if sinks.keys.dim() == 1 else sinks.keys[:, None, :, None]
        q_BHTD = torch.cat((q_BHTD, far_BHTD), -1)
        k_BHSD = torch.cat((k_BHSD.masked_fill(keys_S1, 0.0), k_BHSD.masked_fill(~keys_S1, 0.0)), -1)
    v_BHSD = layer.values(v_BHSD, contexts)
    row_scale = None
    if logit_scale is not None:
        row_scale = logit_scale(contexts[0], torch.promote_types(q_BHTD.dtype, torch.float32), x_BTE)
        if logit_scale.without_positions:
            row_scale = row_scale.of_heads([not reads for reads in layer.heads_with_positions])
    return q_BHTD, k_BHSD, v_BHSD, ScoreTerms(layer, contexts, content, row_scale=row_scale)
