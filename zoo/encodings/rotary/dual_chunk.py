"""Dual chunk attention."""

from typing import Any

import torch
from torch import Tensor

from zoo.encodings.base import Size
from zoo.encodings.context import AttentionContext, per_query_and_key
from zoo.encodings.rotary.two_ranges import TwoRanges
from zoo.recipe.fields import Positive
from zoo.registry import register


@register("dual_chunk")
class DualChunk(TwoRanges):
    """RoPE within chunks of the text, and distances that stay below a limit between them.

    Chunks have c = s - w tokens, and a key stands at p mod c in its chunk. A query looks at its own chunk
    from p mod c, at the one before from min((p mod c) + c, s), and at older ones from min(2c - 1, s). So no
    distance is above s, and those up to w are the ones of RoPE as long as w is at most c.

    For evaluation of a model trained with rope: `zoo evaluate RUN --set model.encoding=dual_chunk`. The
    options of rope are then those of the training run.

    Options:
        longest: s, the longest distance, in tokens. null: three quarters of the trained length.
        window: w, in tokens, below s. null: an eighth of the trained length.

    Three products of queries and keys are made: RoPE's, and one of twice the width for each of the other
    ranges, which is the far one less RoPE's. No fused kernel can do that. The defaults and the ranges are
    those of the authors' code (github.com/HKUNLP/ChunkLlama, `chunkllama_attn_replace.py`). Beyond the
    trained length it also multiplies queries and keys by a factor, as YaRN does; this is left out, as in the
    results of the paper. Checked against a loop over the positions and, within a chunk, against rope.
    """

    formula = (
        r"a_{ij} = \frac{(R_{\rho_{ij}}\, q_i) \cdot k_j}{\sqrt{D}},\qquad \rho_{ij} = i - j,\quad"
        r"\min(i \bmod c + c,\, s) - j \bmod c,\quad \min(2c-1,\, s) - j \bmod c"
    )
    paper = "An et al. 2024 (arXiv:2402.17463)"
    family = "rotary"
    encoder = False
    relative = False
    extrapolates = "yes"
    integer_positions = True
    after_training = ("longest", "window")
    replaces = ("rope",)

    def __init__(
        self,
        size: Size,
        *,
        longest: Positive | None = None,
        window: Positive | None = None,
        **rope: Any,
    ):
        window = max(1, size.length // 8) if window is None else window
        super().__init__(size, window=window, **rope)
        self.longest = max(window + 1, size.length * 3 // 4) if longest is None else longest
        if self.window >= self.longest:
            raise ValueError(f"window {self.window} must be below the longest distance {self.longest}")
        self.chunk = self.longest - self.window

    def shorten(self, pos: Tensor) -> Tensor:
        return pos % self.chunk

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        if context.consecutive and context.num_keys <= self.chunk:
            return logits
        keys = self._far_and_near(k, context)
        query, key = per_query_and_key(context.q_pos, context.k_pos)
        apart = torch.div(query, self.chunk, rounding_mode="floor") - torch.div(
            key, self.chunk, rounding_mode="floor"
        )
        last = self.shorten(context.q_pos) + self.chunk
        for far, here in ((last, apart == 1), (torch.full_like(last, 2 * self.chunk - 1), apart > 1)):
            change = self._difference(q, keys, context, far.clamp(max=self.longest)).to(logits.dtype)
            logits = logits + change.masked_fill(~here, 0.0)
        return logits
