"""Positional skip-wise training (PoSE)."""

from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.wrapper import Wrapper, check_reads_positions
from zoo.recipe.fields import Positive
from zoo.registry import register


@register("pose")
class PoSE(Wrapper):
    """In training the positions of a sequence skip ahead once, so that short sequences have long distances.

    A sequence of n tokens is cut into two chunks. The first has l tokens at positions 0 .. l - 1, with l ~
    U{1 .. (n + 1) // 2}; the positions of the second are moved by u ~ U{0 .. max_position - n}. l and u are
    drawn for each sequence. Outside training positions are plain.

    Options:
        of: the encoding that sees these positions; `rope` in the paper. A learned table must have
            max_position rows.
        max_position: how many positions there are, in tokens: the length that the model is to read later.

    The chunks are adjacent parts of the text. The authors' code also skips text between the chunks: it takes
    the second chunk from anywhere later in a document of up to 5 n tokens. Their paper interpolates the
    positions of RoPE: `{name: rope, scaling: linear, factor: ...}`. Checked against a loop over the
    positions of the authors' code (github.com/dwzhu-pku/PoSE, `train_pose.py`), and statistics of the draws.
    """

    formula = (
        r"p_i = i \text{ for } i < l,\quad i + u \text{ from there on},"
        r"\qquad l \sim U\{1, \ldots, \lfloor (n+1)/2 \rfloor\},\ u \sim U\{0, \ldots, M-n\}"
    )
    paper = "Zhu et al. 2024 (arXiv:2309.10400)"
    family = "position ids"
    extrapolates = "yes"

    def __init__(self, size: Size, *, of: Encoding, max_position: Positive = 2048):
        super().__init__(size, of)
        if of.extrapolates == "no":
            self.extrapolates = "yes"
        check_reads_positions(of, "to skip positions changes nothing")
        if max_position < size.length:
            raise ValueError(f"max_position {max_position} is below the trained length {size.length}")
        if of.num_positions is not None and of.num_positions < max_position:
            raise ValueError(
                f"positions reach {max_position - 1}, but {of.name!r} has only {of.num_positions}: give it "
                f"table_length: {max_position}, or a smaller max_position"
            )
        self.max_position = max_position
        self.position_key = ("two chunks", of.position_key)

    def uses(self, hook: str) -> bool:
        return self.of.uses(hook) or (hook == "positions" and self.training)

    def positions(self, ids: Tensor, batch: int) -> Tensor:
        if self.training:
            length = ids.amax(-1, keepdim=True) + 1
            first, skip = self.random(batch, 2, ids.device).split(1, -1)
            first = 1 + (first * ((length + 1) // 2)).long()
            # A sequence that is longer than max_position skips nothing.
            skip = (skip * ((self.max_position - length).clamp(min=0) + 1)).long()
            ids = ids + skip * (ids >= first)
        return self.of.positions(ids, batch)
