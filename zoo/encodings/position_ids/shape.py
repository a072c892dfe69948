"""Shifted absolute positions (SHAPE)."""

from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.wrapper import Wrapper, check_reads_positions
from zoo.recipe.fields import Count, Positive
from zoo.registry import register


@register("shape")
class SHAPE(Wrapper):
    """In training each sequence begins at a random position, so that an absolute encoding learns distances.

    Position i becomes i + k with k drawn from U{0 .. max_offset - 1}, one k for each sequence of a batch.

    Options:
        of: the absolute encoding that sees these positions; `sinusoidal` in the paper. A learned table needs
            a row for each position that can come up. A relative encoding is refused: it would notice nothing.
        max_offset: how many offsets there are to draw from, in tokens; 500 in the authors' configurations.
        evaluation_offset: k outside training, in tokens. By default 0, which is met in training. The authors'
            code takes max_offset, one more than any that it draws (github.com/butsugiri/shape,
            onmt/modules/embeddings.py).

    Checked against a loop over the sequences, and statistics of the draws.
    """

    formula = r"p_i = i + k,\qquad k \sim U\{0, \ldots, K-1\}"
    paper = "Kiyono et al. 2021 (arXiv:2109.05644)"
    family = "position ids"
    extrapolates = "yes"
    after_training = ("evaluation_offset",)

    def __init__(self, size: Size, *, of: Encoding, max_offset: Positive = 500, evaluation_offset: Count = 0):
        super().__init__(size, of)
        if of.extrapolates == "no":
            self.extrapolates = "yes"
        check_reads_positions(of, "to shift it changes nothing")
        if of.relative:
            raise ValueError(
                f"{of.name!r} is relative: shifting a whole sequence changes nothing; it is for absolute ones"
            )
        needed = size.length + max(max_offset - 1, evaluation_offset)
        if of.num_positions is not None and of.num_positions < needed:
            raise ValueError(
                f"shifted sequences reach position {needed - 1}, but {of.name!r} has only {of.num_positions} "
                f"positions: give it table_length: {needed}, or smaller offsets"
            )
        self.max_offset = max_offset
        self.evaluation_offset = evaluation_offset
        self.position_key = ("shifted", of.position_key)

    @property
    def max_length(self) -> int | None:
        return self._shortened(self.of.max_length)

    @property
    def max_cached_length(self) -> int | None:
        return self._shortened(self.of.max_cached_length)

    @property
    def num_positions(self) -> int | None:
        return self._shortened(self.of.num_positions)

    def _shortened(self, limit: int | None) -> int | None:
        farthest = self.max_offset - 1 if self.training else self.evaluation_offset
        return None if limit is None else max(0, limit - farthest)

    def positions(self, ids: Tensor, batch: int) -> Tensor:
        if self.training:
            ids = ids + (self.random(batch, 1, ids.device) * self.max_offset).long()
        else:
            ids = ids + self.evaluation_offset
        return self.of.positions(ids, batch)
