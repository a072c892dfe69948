"""The relative positions of Transformer-XL.

Shapes in names: B batch, T queries, S keys, H heads, D head width, E model width, L distances.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.recipe.fields import Positive
from zoo.registry import register


@register("transformer_xl")
class TransformerXL(Encoding):
    """Fixed sinusoids of the distance, projected like keys, and two learned vectors in place of the query's.

    score = (u_h . k_j + (q_i + v_h) . W_h R_(i-j)) / sqrt(D), added to the usual q_i . k_j / sqrt(D). R_d
    holds sin(d 10000^(-2m/E)) for m = 0 .. E/2 - 1, then the cosines. Each layer has its own W, u and v.

    Options:
        clamp: distances beyond it count as it, in tokens (`clamp_len` there); by default none does.

    W is drawn from N(0, 0.02), and so are u and v, as in the authors' code, where layers share u and v unless
    `untie_r` is set. Angles are computed in float32. At the default positions the products with
    all distances are looked up; at other positions sin and cos of a difference come from those of query and
    key. Checked against a loop over the paper's section 3.3.
    """

    formula = r"a_{ij} = \frac{(q_i + u_h) \cdot k_j + (q_i + v_h) \cdot W_h R_{i-j}}{\sqrt{D}}"
    paper = "Dai et al. 2019 (arXiv:1901.02860)"
    family = "content"
    weight_matrices = ("project",)
    relative = True
    extrapolates = "yes"
    per_layer = True
    after_training = ("clamp",)

    def __init__(self, size: Size, *, clamp: Positive | None = None):
        super().__init__(size)
        if size.d_model % 2:
            raise ValueError(f"transformer_xl needs an even d_model, not {size.d_model}")
        self.clamp = clamp
        shape = size.num_heads, size.head_dim
        self.content_bias = nn.Parameter(0.02 * torch.randn(shape))
        self.position_bias = nn.Parameter(0.02 * torch.randn(shape))
        self.project = nn.Parameter(0.02 * torch.randn(size.num_heads * size.head_dim, size.d_model))
        frequency = 10000.0 ** -(torch.arange(0, size.d_model, 2) / size.d_model)
        self.register_buffer("frequency", frequency, persistent=False)

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        q, k = q * self.size.scale, k * self.size.scale
        content_BH1S = self.content_bias.to(k.dtype)[:, None] @ k.transpose(-1, -2)
        q_BHTD = q + (self.position_bias * self.size.scale).to(q.dtype)[:, None]
        if not context.consecutive:
            return content_BH1S + self._by_positions(q_BHTD, context)
        distances = context.row_distances()
        products_BHTL = q_BHTD @ self._vectors(distances, q.dtype).mT
        # Each row begins one distance before the row below it.
        start, keys = (torch.arange(n, device=q.device) for n in (context.num_queries, context.num_keys))
        column_TS = (start.flip(0)[:, None] + keys).clamp(max=len(distances) - 1)
        return content_BH1S + products_BHTL.gather(-1, column_TS.expand(*q.shape[:2], -1, -1))

    def _by_positions(self, q: Tensor, context: AttentionContext) -> Tensor:
        """The same for any positions, by sin(a - b) and cos(a - b): no [T,S,E] tensor, no rounding."""
        # Counted from the first key, since far from 0 a float32 angle is less exact.
        start = context.k_pos[..., :1]
        sin_q, cos_q = self._waves(context.q_pos - start).chunk(2, -1)
        sin_k, cos_k = self._waves(context.k_pos - start).chunk(2, -1)
        # W for each head, [H,D,E].
        weights_HDE = self.project.to(q.dtype).unflatten(0, (self.size.num_heads, self.size.head_dim))
        by_sin, by_cos = (q @ weights_HDE).chunk(2, -1)
        query_BHTE = torch.cat((by_cos * sin_q - by_sin * cos_q, by_sin * sin_q + by_cos * cos_q), -1)
        score_BHTS = query_BHTE.to(q.dtype) @ torch.cat((sin_k, cos_k), -1).to(q.dtype).transpose(-1, -2)
        if self.clamp is None:
            return score_BHTS
        distance = context.distance()
        ends = torch.tensor([self.clamp, -self.clamp], device=q.device)
        back, ahead = (q @ self._vectors(ends, q.dtype).mT).split(1, -1)
        score_BHTS = torch.where(distance >= self.clamp, back, score_BHTS)
        return torch.where(distance <= -self.clamp, ahead, score_BHTS)

    def _vectors(self, distance: Tensor, dtype: torch.dtype) -> Tensor:
        """W R_d for each head and each of the distances [L]: [H,L,D]."""
        if self.clamp is not None:
            distance = distance.clamp(-self.clamp, self.clamp)
        rows_LE = F.linear(self._waves(distance).to(dtype), self.project.to(dtype))
        return rows_LE.unflatten(-1, (self.size.num_heads, self.size.head_dim)).transpose(0, 1)

    def _waves(self, pos: Tensor) -> Tensor:
        """R of positions or distances [L] or [B,L]: [L,E] or [B,1,L,E], in float32."""
        with torch.autocast(pos.device.type, enabled=False):
            angle = pos.float()[..., None] * self.frequency
        angle = angle if pos.dim() == 1 else angle[:, None]
        return torch.cat((angle.sin(), angle.cos()), -1)
