import torch
from torch import nn

import zoo


class _Slopes(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.register_buffer("slope", 2.0 ** -torch.arange(heads), persistent=False)


@zoo.register("table_in_a_submodule")
class TableInASubmodule(zoo.Encoding):
    """Has its table in a module that is not an `Encoding`, where `to_empty` loses the values."""

    family = "bias"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.slopes = _Slopes(size.num_heads)

    def bias(self, head, q, k):
        return -self.slopes.slope[head] * (q - k).abs()
