"""Logits scaled by a factor of each query.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D head width, E model width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.context import AttentionContext
from zoo.recipe import schema


class LogitScale(nn.Module):
    """The base of scales: the factor of every query, from its context and the input of its layer."""

    without_positions = False
    """Whether only heads are scaled in which no encoding reads positions."""

    def forward(self, context: AttentionContext, dtype: torch.dtype, x_BTE: Tensor | None = None) -> RowScale:
        """The factor of every query of a context, in this precision."""
        raise NotImplementedError


def logit_scale_of(config: schema.ModelConfig) -> LogitScale | None:
    """The scale that a model's configuration asks for."""
    scale = config.logit_scale
    if scale == "none":
        return None
    made = _made(scale, config)
    made.without_positions = getattr(scale, "heads", "all") == "without_positions"
    return made


def _made(scale: schema.LogitScale, config: schema.ModelConfig) -> LogitScale:
    if isinstance(scale, schema.Adaptive):
        return AdaptiveScale(config.d_model, config.num_heads, scale.bias)
    if isinstance(scale, schema.Temperature):
        return TemperatureScale(scale.scale, scale.length, scale.offset)
    return LogScale(scale, config.num_heads)


class LogScale(LogitScale):
    """The factor of a query's logits, after 1/sqrt(D) and everything that the encodings add.

    With bounded logits the largest weight of a softmax over n keys goes to 0 as n grows (attention disperses:
    Veličković et al. 2024, arXiv:2410.01104). A factor log n prevents that: e^(z log n) = n^z grows with the
    sum that divides it.

    log_n: z -> log(n) z, "log-length scaled attention" (Chiang and Cholak 2022, arXiv:2202.12172, section 5).
        Undivided, as published there; Su's log(n) / log(512) and the log(n) / log(L) of ReRoPE differ from it
        by a constant, which the projections can learn and a fixed bias such as ALiBi's cannot.
    scalable_softmax: z -> s log(n) z, with s learned for each head and layer (Nakanishi 2025,
        arXiv:2501.19399, SSMax without the bias term). s starts at the paper's 0.168, the reciprocal of the
        mean of log n over its trained length of 1024: at first a usual softmax, on average.

    The papers define it as another softmax, so all of a logit is scaled, position biases included, after
    `Encoding.logits`. n is the number of keys that the mask lets this query see in this layer: i + 1 for the
    i-th token of a decoder, at most the window, without padding; in an encoder every token that is not
    padding. Where documents are separate, only tokens of the query's own document count. A key that only a
    bias excludes (-inf) is counted. A single key has log 1 = 0 and weight 1 at any logit.
    """

    starts_from = 0.168
    """The initial s; `draw_initial` reads it."""

    def __init__(self, kind: str, num_heads: int):
        super().__init__()
        learned = kind == "scalable_softmax"
        self.s = nn.Parameter(torch.full((num_heads,), self.starts_from)) if learned else None

    def forward(self, context: AttentionContext, dtype: torch.dtype, x_BTE: Tensor | None = None) -> RowScale:
        # The same in all layers with the same window; the memo lasts one forward pass.
        key = ("log n", context.window)
        if key not in context.shared:
            log_n = visible_keys(context).clamp(min=1).to(dtype).log()
            context.shared[key] = log_n.view(-1, 1, context.num_queries, 1)
        log_n_B1T1 = context.shared[key]
        if self.s is None:
            return RowScale(log_n_B1T1, shared=True)
        return RowScale(self.s.to(dtype)[:, None, None] * log_n_B1T1, shared=False)


class AdaptiveScale(LogitScale):
    """Logits times 1 + softplus(w_b x) (ln(n + 1))^(2 tanh(w_g x)), for each query and head.

    ASEntmax (Vasylenko et al. 2025, arXiv:2506.16640), together with `entmax`: x is the input of the layer's
    projections, n the number of keys that the query sees, as in `LogScale`. A head learns how fast its
    logits grow with n, or that they fall. Heads that are not scaled have weights too, without effect: models
    of different encodings have the same. The published code (deep-spin/asentmax, `sparse_gemma.py`) scales
    queries, which is the same in a head without positions, the only ones it scales there.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool):
        super().__init__()
        self.beta = nn.Linear(d_model, num_heads, bias=bias)
        self.gamma = nn.Linear(d_model, num_heads, bias=bias)

    def forward(self, context: AttentionContext, dtype: torch.dtype, x_BTE: Tensor | None = None) -> RowScale:
        log_n_BT1 = (visible_keys(context).clamp(min=1) + 1).to(dtype).log().view(-1, x_BTE.shape[1], 1)
        beta_BTH, gamma_BTH = F.softplus(self.beta(x_BTE).to(dtype)), 2 * self.gamma(x_BTE).to(dtype).tanh()
        factor_BTH = 1 + beta_BTH * log_n_BT1.pow(gamma_BTH)
        return RowScale(factor_BTH.transpose(1, 2)[..., None], shared=False)


class TemperatureScale(LogitScale):
    """Logits times 1 + s ln(1 + floor((p + offset) / L)) for a query at position p, without parameters.

    Llama 4 scales the queries of its layers without positions so, with s = 0.1, L = 8192 and offset 1
    (`transformers`, `llama4`), Ministral 3 those of all layers, with offset 0. p counts the tokens
    before the query in its sequence or document, without padding, at any position that an encoding gives it.
    """

    def __init__(self, scale: float, length: int, offset: int = 1):
        super().__init__()
        self.scale, self.length, self.offset = scale, length, offset

    def forward(self, context: AttentionContext, dtype: torch.dtype, x_BTE: Tensor | None = None) -> RowScale:
        place = (context.token_counts() + (self.offset - 1)).clamp(min=0).to(dtype)  # 0 of padding
        steps = (place / self.length).floor().view(-1, 1, context.num_queries, 1)
        return RowScale(1 + self.scale * steps.log1p(), shared=True)


def visible_keys(context: AttentionContext) -> Tensor:
    """The number of keys that each query may see: [T], or [B,T] where sequences differ."""
    if context.documents is not None:
        return context.allowed().sum(-1)[:, 0]
    row = torch.arange(
        context.query_offset, context.query_offset + context.num_queries, device=context.q_pos.device
    )
    behind = torch.zeros_like(row) if context.window is None else (row - context.window + 1).clamp(min=0)
    if context.causal:
        end = row + 1
    elif context.window is None:
        end = torch.full_like(row, context.num_keys)
    else:
        end = (row + context.window).clamp(max=context.num_keys)
    count = end - behind
    if context.keep is not None:
        kept = F.pad(context.keep.cumsum(-1), (1, 0))
        count = kept[:, end] - kept[:, behind]
    if context.sinks is not None:
        sinks = context.sinks.keys if context.keep is None else context.sinks.keys & context.keep
        count = count + F.pad(sinks.cumsum(-1), (1, 0))[..., behind]
    return count


@dataclass(frozen=True)
class RowScale:
    """A factor for each query; B and H are 1 if it is the same for all sequences or heads."""

    factor_BHT1: Tensor
    shared: bool
    """Whether every layer with the same window has the same tensor."""

    def of_heads(self, heads: Sequence[bool]) -> RowScale:
        """The same for these heads; the others are not scaled."""
        chosen_H11 = torch.tensor(heads, device=self.factor_BHT1.device)[:, None, None]
        return RowScale(self.factor_BHT1.where(chosen_H11, 1.0), shared=False)

    def queries(self, start: int, stop: int) -> RowScale:
        return RowScale(self.factor_BHT1[..., start:stop, :], self.shared)

    def of_queries(self, q_BHTD: Tensor) -> Tensor:
        """Queries whose products with keys are scaled."""
        return (q_BHTD * self.factor_BHT1).to(q_BHTD.dtype)

    def of_table(self, table: Tensor) -> Tensor:
        """Scale (part of) the logits, [...,T,S]. -inf stays -inf, without a gradient: 0 * -inf is NaN."""
        excluded = table == -torch.inf
        return (table.masked_fill(excluded, 0.0) * self.factor_BHT1).masked_fill(excluded, -torch.inf)

    def of_point(self, value: Tensor, b: Tensor, h: Tensor, row: Tensor) -> Tensor:
        """The bias of one query and key, scaled, inside a fused kernel."""
        batch, heads, *_ = self.factor_BHT1.shape
        factor = self.factor_BHT1[b if batch > 1 else 0, h if heads > 1 else 0, row, 0]
        excluded = value == -torch.inf
        return torch.where(excluded, -torch.inf, torch.where(excluded, 0.0, value) * factor)
