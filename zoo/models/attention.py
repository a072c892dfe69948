"""Multi-head attention around the encodings' hooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from zoo.encodings.base import Span
from zoo.encodings.stack import View
from zoo.models.cache import LayerCache
from zoo.models.kernels import attend
from zoo.models.logit_scale import LogitScale
from zoo.models.scores import Scores
from zoo.recipe import schema


class Attention(nn.Module):
    """Self-attention with one projection for queries, keys and values, and optionally fewer key heads.

    Shapes: [B,T,E] to [B,T,E]. With a cache the keys are all tokens so far.
    """

    def __init__(self, config: schema.ModelConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.num_kv_heads = config.num_kv_heads or config.num_heads
        self.head_dim = config.d_model // config.num_heads
        self.kernel = config.kernel
        rows = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        self.qkv = nn.Linear(config.d_model, rows, bias=False)
        self.out = nn.Linear(config.d_model, config.d_model, bias=False)
        self.out.into_residual = True
        self.q_norm = nn.RMSNorm(self.head_dim) if config.qk_norm else None
        self.k_norm = nn.RMSNorm(self.head_dim) if config.qk_norm else None
        scale = config.logit_scale
        self.logit_scale = None if scale == "none" else LogitScale(scale, self.num_heads)

    def forward(
        self, x: Tensor, view: View, spans: Sequence[Span], cache: LayerCache | None = None
    ) -> Tensor:
        """`spans` holds one for each encoding of the view."""
        read = view.read(x)
        # [B,T,heads,D] to [B,heads,T,D], then apart by heads.
        heads = self.qkv(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        q, k, v = heads.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), 1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        if cache is not None:
            k, v, read = cache.extend(k, v, read)
        if self.num_kv_heads != self.num_heads:
            groups = self.num_heads // self.num_kv_heads
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        spans = [span if r is None else replace(span, read=r) for span, r in zip(spans, read, strict=True)]
        row_scale = None
        if self.logit_scale is not None:
            row_scale = self.logit_scale(spans[0], torch.promote_types(q.dtype, torch.float32))
        scores = Scores(view, spans, content=(q, k), row_scale=row_scale)
        q, k = view.rotate(q, k, spans)
        out = attend(q, k, v, scores, self.head_dim**-0.5, self.kernel)
        return self.out(out.transpose(1, 2).flatten(2))
