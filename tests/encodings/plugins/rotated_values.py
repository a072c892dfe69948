"""The hooks `values` and `output`: values turn by their position, the output turns back by the query's."""

from torch import Tensor

import zoo
from zoo.encodings.rotary.rotation import angles, frequencies, turn


@zoo.register("rotated_values")
class RotatedValues(zoo.Encoding):
    """A value is turned by its distance from the query: R(-i) sum_j w_ij R(j) v_j.

    Options:
        base: of the frequencies.
    """

    paper = "DeepSeek-V4 (2026)"
    family = "rotary"
    relative = True

    def __init__(self, size: zoo.Size, *, base: float = 100.0):
        super().__init__(size)
        self.register_buffer("frequency", frequencies(size.head_dim, base), persistent=False)

    def values(self, v: Tensor, context: zoo.AttentionContext) -> Tensor:
        angle = angles(context.k_pos, self.frequency)
        return turn(v, angle.cos(), angle.sin())

    def output(self, out: Tensor, context: zoo.AttentionContext) -> Tensor:
        angle = -angles(context.q_pos, self.frequency)
        return turn(out, angle.cos(), angle.sin())
