import torch
from torch import nn

import zoo


@zoo.register("learned_rates_in_bf16")
class LearnedRatesInBf16(zoo.Encoding):
    """Rounds learned frequencies to the precision of the queries."""

    family = "rotary"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.rates = nn.Parameter(1.37 * 10000 ** -torch.linspace(0, 1, size.head_dim // 2))

    def rotate(self, q, k, context):
        return self._turn(q, context.q_pos), self._turn(k, context.k_pos)

    def _turn(self, x, pos):
        angle = pos.float()[..., None] * self.rates.to(x.dtype).float()
        angle = angle if angle.dim() == 2 else angle[:, None]
        a, b = x.float().chunk(2, -1)
        turned = torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
        return turned.to(x.dtype)
