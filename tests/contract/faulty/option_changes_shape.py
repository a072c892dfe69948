from typing import Literal

import torch
from torch import nn

import zoo


@zoo.register("option_changes_shape")
class OptionChangesShape(zoo.Encoding):
    """An option listed in `after_training` decides the number of parameters."""

    family = "bias"
    relative = True
    after_training = ("rows",)

    def __init__(self, size, *, rows: Literal["few", "many"] = "few"):
        super().__init__(size)
        self.table = nn.Parameter(torch.randn(8 if rows == "few" else 16, size.num_heads))

    def bias(self, head, q, k):
        return self.table[(q - k).abs().clamp(max=7).long(), head]
