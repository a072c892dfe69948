import torch

import zoo


@zoo.register("angles_in_bf16")
class AnglesInBF16(zoo.Encoding):
    """Computes angles in bf16, which is exact to 256."""

    family = "rotary"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.register_buffer(
            "frequency", 10000 ** -torch.linspace(0, 1, size.head_dim // 2), persistent=False
        )

    def rotate(self, q, k, context):
        return self.turn(q, context.q_pos), self.turn(k, context.k_pos)

    def turn(self, x, pos):
        angle = pos.to(x.dtype)[..., None] * self.frequency.to(x.dtype)
        angle = angle if pos.dim() == 1 else angle[:, None]
        a, b = x.chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
