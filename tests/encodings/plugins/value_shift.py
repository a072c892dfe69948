"""The hooks `read`, `values` and `output`: a gate mixes the value of the token before into each."""

import torch
from torch import Tensor, nn

import zoo


@zoo.register("value_shift")
class ValueShift(zoo.Encoding):
    """v_t becomes a_t v_(t-1) + (1 - a_t) v_t, with a_t = sigmoid(w_h x_t); heads are scaled by 1 - a_t."""

    paper = "Lin et al. 2025 (arXiv:2503.02130), the shift of values in FoX (Pro)"
    family = "contextual"
    relative = True
    per_layer = True
    reads_positions = False

    def __init__(self, size: zoo.Size):
        super().__init__(size)
        self.gate = nn.Linear(size.d_model, size.num_heads, bias=False)

    def read(self, x: Tensor) -> Tensor:
        return self.gate(x).sigmoid()

    def values(self, v: Tensor, context: zoo.AttentionContext) -> Tensor:
        gate = context.features.transpose(1, 2)[..., None]
        return torch.lerp(v.float(), context.previous(v).float(), gate.float()).to(v.dtype)

    def output(self, out: Tensor, context: zoo.AttentionContext) -> Tensor:
        own = context.features[:, context.query_offset :][:, : out.shape[2]]
        return out * (1 - own).transpose(1, 2)[..., None].to(out.dtype)
