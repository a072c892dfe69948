"""Logits that grow with the number of keys among which the softmax divides its weight."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Span


class LogitScale(nn.Module):
    """What a query's logits are multiplied by, after 1/sqrt(D) and all that the encodings add.

    With bounded logits the largest weight of a softmax over n keys goes to 0 as n grows (attention disperses:
    Veličković et al. 2024, arXiv:2410.01104). A factor log n keeps it: e^(z log n) = n^z grows with the sum
    that it is divided by.

    log_n: z -> log(n) z, "log-length scaled attention" (Chiang and Cholak 2022, arXiv:2202.12172, section 5).
        Undivided, as published there; Su's log(n) / log(512) and the log(n) / log(L) of ReRoPE differ from it
        by a constant, which the projections can learn and a fixed bias such as ALiBi's cannot.
    scalable_softmax: z -> s log(n) z, with s learned for each head and layer (Nakanishi 2025,
        arXiv:2501.19399, SSMax without the bias term). s starts at the paper's 0.168, the reciprocal of the
        mean of log n over its trained length of 1024: at first a usual softmax, on average.

    The papers define it as another softmax, so the whole logits are scaled, position biases included, and
    what an encoding makes of the logits (`Encoding.logits`) comes before. n is the number of keys that the
    mask lets this query see, in this layer: i + 1 for the i-th token of a decoder, at most the window, no
    padding counted; in an encoder every token that is not padding. A key that a bias alone closes (-inf) is
    counted. A single key has log 1 = 0 and the whole weight whatever its logit.
    """

    starts_from = 0.168
    """What s starts from; `draw_initial` reads it."""

    def __init__(self, kind: str, num_heads: int):
        super().__init__()
        learned = kind == "scalable_softmax"
        self.s = nn.Parameter(torch.full((num_heads,), self.starts_from)) if learned else None

    def forward(self, span: Span, dtype: torch.dtype) -> RowScale:
        """The factor of every query of a span, in this precision."""
        # The same in all layers with the same window; the memo lasts one forward pass.
        key = ("log n", span.window)
        if key not in span.memo:
            log_n = visible_keys(span).clamp(min=1).to(dtype).log()
            span.memo[key] = log_n.view(-1, 1, span.num_queries, 1)
        log_n = span.memo[key]
        if self.s is None:
            return RowScale(log_n, shared=True)
        return RowScale(self.s.to(dtype)[:, None, None] * log_n, shared=False)


def visible_keys(span: Span) -> Tensor:
    """How many keys each query may see: [T], or [B,T] where there is padding."""
    row = torch.arange(span.first, span.first + span.num_queries, device=span.q_pos.device)
    behind = torch.zeros_like(row) if span.window is None else (row - span.window + 1).clamp(min=0)
    if span.causal:
        end = row + 1
    elif span.window is None:
        end = torch.full_like(row, span.num_keys)
    else:
        end = (row + span.window).clamp(max=span.num_keys)
    if span.keep is None:
        return end - behind
    kept = F.pad(span.keep.cumsum(-1), (1, 0))
    return kept[:, end] - kept[:, behind]


@dataclass(frozen=True)
class RowScale:
    """A factor for each query: [B,H,T,1], B and H 1 where it is the same for all sequences or heads."""

    factor: Tensor
    shared: bool
    """Every layer with the same window has the same, in the same tensor."""

    def queries(self, start: int, stop: int) -> RowScale:
        return RowScale(self.factor[..., start:stop, :], self.shared)

    def of_queries(self, q: Tensor) -> Tensor:
        """Queries [B,H,T,D] whose products are scaled."""
        return (q * self.factor).to(q.dtype)

    def of_table(self, table: Tensor) -> Tensor:
        """Logits, or a part of them, [..,T,S]. What is closed stays closed, and has no gradient: 0 times -inf
        would be NaN."""
        closed = table == -torch.inf
        return (table.masked_fill(closed, 0.0) * self.factor).masked_fill(closed, -torch.inf)

    def of_point(self, value: Tensor, b: Tensor, h: Tensor, row: Tensor) -> Tensor:
        """The same for one pair of a batch and head, with the query in a row, inside a fused kernel."""
        batch, heads, *_ = self.factor.shape
        factor = self.factor[b if batch > 1 else 0, h if heads > 1 else 0, row, 0]
        closed = value == -torch.inf
        return torch.where(closed, -torch.inf, torch.where(closed, 0.0, value) * factor)
