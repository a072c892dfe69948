"""Learned absolute positions."""

from typing import Literal

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.registry import register


@register("learned")
class Learned(Encoding):
    """A learned vector for each position, added to the token vector.

    Past the end of the table there is nothing to look up: an option chooses what happens instead.

    Options:
        table_length: rows of the table, in tokens; by default the trained length.
        beyond: past the table, `error` refuses the sequence, `clamp` repeats the last row, `interpolate`
            stretches the table linearly over the sequence, each sequence of a batch by itself; since its
            length is then part of every position, it cannot be decoded with a cache beyond the table.

    Drawn from N(0, 0.02) as in GPT-2. Checked against a loop over the table.
    """

    formula = r"x_i \to x_i + P_i"
    paper = "Gehring et al. 2017 (arXiv:1705.03122); Radford et al. 2019 (GPT-2)"
    family = "absolute"
    extrapolates = "policy"
    after_training = ("beyond",)
    integer_positions = True

    def __init__(
        self,
        size: Size,
        *,
        table_length: int | None = None,
        beyond: Literal["error", "clamp", "interpolate"] = "error",
    ):
        super().__init__(size)
        rows = size.length if table_length is None else table_length
        if rows < size.length:
            raise ValueError(f"table_length {rows} is shorter than the trained length {size.length}")
        self.beyond = beyond
        self.table = nn.Parameter(0.02 * torch.randn(rows, size.d_model))

    @property
    def max_length(self) -> int | None:
        return len(self.table) if self.beyond == "error" else None

    @property
    def max_cached_length(self) -> int | None:
        # Positions are scaled by the length of the full sequence: each new token changes those of all others.
        return len(self.table) if self.beyond == "interpolate" else None

    @property
    def num_positions(self) -> int | None:
        return len(self.table)

    def uses(self, hook: str) -> bool:
        return super().uses(hook) and (hook != "positions" or self.beyond == "interpolate")

    def positions(self, ids: Tensor, batch: int) -> Tensor:
        # Unstretched up to the table's end, so that nothing changes within the trained length.
        last = len(self.table) - 1
        return ids.float() * (last / ids.amax(-1, keepdim=True).clamp(min=last))

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        last = len(self.table) - 1
        if self.beyond == "interpolate":
            low = pos.floor().long().clamp(max=last)
            share = (pos - low)[..., None]
            row = self.table[low] * (1 - share) + self.table[(low + 1).clamp(max=last)] * share
        else:
            # `error` has refused longer sequences before this point; the clamp then changes nothing.
            row = self.table[pos.long().clamp(max=last)]
        return x + row.to(x.dtype)
