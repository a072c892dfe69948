"""Abacus embeddings."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.recipe.fields import Count, Positive
from zoo.registry import register


@register("abacus")
class Abacus(Encoding):
    """A learned vector for the place of a digit inside its number, added to the token vector.

    The first digit of a number has id 1, the next 2, and so on; tokens that are not digits have id 0. In
    training all digits of a batch are moved by one random number, so that the vectors of places beyond the
    longest trained number are trained too. Digits of the same significance share an id where numbers begin
    with their ones, as in `data: {name: addition, order: all_reversed}`.

    Options:
        digits: the token ids of digits; by default those of the symbols 0 to 9 of a generated task.
        table_length: ids that have a vector; digits beyond share the last.
        shift: the largest number by which ids are moved in training, drawn uniformly from 0 on.

    Position ids are not read: combine it with an encoding of positions, or rely on the causal mask. The
    published table starts at N(0, 1), here at N(0, 0.02) as token vectors do. Checked against the published
    code (mcleish7/arithmetic, `abacus.py`) and a loop.
    """

    formula = r"x_i \to x_i + P_{d_i + s}, \qquad d_i \text{ the place of digit } i \text{ in its number}"
    paper = "McLeish et al. 2024 (arXiv:2405.17399)"
    family = "position ids"
    relative = True
    extrapolates = "yes"
    reads_positions = False
    reads_tokens = True

    def __init__(
        self,
        size: Size,
        *,
        digits: Annotated[tuple[Count, ...], Field(min_length=1)] = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
        table_length: Positive = 1024,
        shift: Count = 99,
    ):
        super().__init__(size)
        if table_length < shift + 2:
            raise ValueError(f"table_length {table_length} has no row for a digit moved by shift {shift}")
        self.shift = shift
        self.register_buffer("digits", torch.tensor(digits), persistent=False)
        self.table = nn.Parameter(0.02 * torch.randn(table_length, size.d_model))

    def positions(self, ids: Tensor, batch: int, tokens: Tensor | None = None) -> Tensor:
        place = self.places(ids, tokens)
        if self.training:
            shift = (self.random(None, 1, ids.device) * (self.shift + 1)).long()
            place = torch.where(place > 0, place + shift, 0)
        return place

    def places(self, ids: Tensor, tokens: Tensor | None) -> Tensor:
        """The place of each digit in its number, from 1; 0 for another token. Arguments as of `positions`."""
        if tokens is None:
            return ids + 1  # as if all were digits of one number
        row, is_digit = torch.arange(tokens.shape[1], device=ids.device), torch.isin(tokens, self.digits)
        before = row.expand_as(tokens).masked_fill(is_digit, -1).cummax(-1).values
        return (row - before)[:, -ids.shape[-1] :]

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.table[pos.long().clamp(max=len(self.table) - 1)].to(x.dtype)
