import torch

import zoo


@zoo.register("no_head_axis")
class NoHeadAxis(zoo.Encoding):
    """With positions [B,T] its angles lack an axis for the heads."""

    family = "rotary"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("rates", 10000 ** -torch.linspace(0, 1, size.head_dim // 2), persistent=False)

    def rotate(self, q, k, context):
        return self._turn(q, context.q_pos), self._turn(k, context.k_pos)

    def _turn(self, x, pos):
        angle = pos.float()[..., None] * self.rates
        a, b = x.float().chunk(2, -1)
        turned = torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
        return turned.to(x.dtype)
