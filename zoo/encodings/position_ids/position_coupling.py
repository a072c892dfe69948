"""Position coupling."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from zoo.encodings.base import Size
from zoo.encodings.position_ids.abacus import Abacus
from zoo.recipe.fields import AtLeastTwo, Count
from zoo.registry import register


@register("position_coupling")
class PositionCoupling(Abacus):
    """A learned vector for an id that digits of the same significance share, added to the token vector.

    Operators have id s, the first digit after an operator s + 1, the next s + 2, and so on: numbers begin
    with their ones, as in `data: {name: addition, order: all_reversed}`. Other tokens have id 0. In training
    s is drawn for each sequence from U{1 .. max_position - n}, n the digits of its longest number, so that
    the ids of longer numbers are trained too; outside training s = 1.

    Options:
        digits: the token ids of digits; by default those of the symbols 0 to 9 of a generated task.
        operators: the token ids that have id s; by default the mark that asks for the answer, which is the
            authors' equals sign, and the plus of `addition`.
        max_position: the largest id, as in the authors' configuration; digits beyond share it.

    It differs from abacus in the id of operators and the start of each sequence. The authors' main format
    writes operands with their highest digit first. There an id depends on the digits that follow, which a
    decoder may not read; this is their `reverse_input`. Other tokens and position ids are not read: combine
    it with an encoding of positions, or rely on the causal mask, as the authors do. Drawn from N(0, 0.02).
    Checked against a loop over the numbers, and once against the authors' dataset
    (github.com/HanseulJo/position-coupling, `AdditionDatasetWithCoupledPositions`), whose ids are equal.
    """

    formula = (
        r"x_i \to x_i + P_{s + d_i}, \qquad d_i \text{ the place of digit } i \text{ in its number,}"
        r"\ 0 \text{ for an operator}"
    )
    paper = "Cho et al. 2024 (arXiv:2405.20671); Cho et al. 2025 (arXiv:2410.15787)"

    def __init__(
        self,
        size: Size,
        *,
        digits: Annotated[tuple[Count, ...], Field(min_length=1)] = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
        operators: tuple[Count, ...] = (2, 13),
        max_position: AtLeastTwo = 132,
    ):
        super().__init__(size, digits=digits, table_length=max_position + 1, shift=0)
        self.max_position = max_position
        self.register_buffer("operators", torch.tensor(operators), persistent=False)

    def positions(self, ids: Tensor, batch: int, tokens: Tensor | None = None) -> Tensor:
        place, start = self.places(ids, tokens), 1
        coupled = place > 0
        if tokens is not None:
            coupled = coupled | torch.isin(tokens[:, -ids.shape[-1] :], self.operators)
        if self.training:
            starts = (self.max_position - place.amax(-1, keepdim=True)).clamp(min=1)
            start = 1 + (self.random(batch, 1, ids.device) * starts).long()
        return torch.where(coupled, place + start, 0)
