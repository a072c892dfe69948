import torch

import zoo


@zoo.register("rotate_gives_float32")
class RotateGivesFloat32(zoo.Encoding):
    """`rotate` returns float32 whatever the precision of the model."""

    family = "rotary"
    relative = True

    def rotate(self, q, k, context):
        return self.turn(q, context.q_pos), self.turn(k, context.k_pos)

    def turn(self, x, pos):
        angle = (pos if pos.dim() == 1 else pos[:, None]).float()[..., None]
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
