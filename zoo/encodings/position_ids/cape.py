"""Continuous augmented positions (CAPE)."""

import math

import torch
from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.wrapper import Wrapper, check_reads_positions
from zoo.recipe.fields import Factor, NotNegative
from zoo.registry import register


@register("cape")
class CAPE(Wrapper):
    """In training positions are shifted, jittered and scaled at random, around another encoding.

    Position p_i becomes (p_i + D + e_i) s. D ~ U(-max_global_shift, max_global_shift) and log s ~ U(-log
    max_scale, log max_scale) are drawn for each sequence, e_i ~ U(-max_local_shift, max_local_shift) for each
    token. Outside training p_i stays as it is.

    Options:
        of: the encoding that sees these positions; `sinusoidal` in the paper. It must be defined between
            positions and before the first.
        max_global_shift: in tokens.
        max_local_shift: in tokens; up to 0.5 the order of the tokens is kept.
        max_scale: (`max_global_scaling` there) the largest factor; its inverse is the smallest.
        centred: (`normalize` there) the mean position of a sequence is taken from its positions first, in
            training and outside, as the paper does for sound. A decoder's tokens then know how long the whole
            sequence is, and there is no decoding with a cache. For a relative encoding it changes nothing,
            and is left out.

    The defaults are those of github.com/gcambara/cape for text, which it does not centre; its local
    shift of 0.5, too, is one of up to 0.5 to either side. Checked against a loop over the formula, and
    statistics of the draws.
    """

    formula = (
        r"p_i \to (p_i + \Delta + \epsilon_i)\, s,"
        r"\qquad \Delta \sim U(-a, a),\ \epsilon_i \sim U(-b, b),\ \ln s \sim U(-\ln c, \ln c)"
    )
    paper = "Likhomanenko et al. 2021 (arXiv:2106.03143)"
    family = "position ids"
    extrapolates = "yes"

    def __init__(
        self,
        size: Size,
        *,
        of: Encoding,
        max_global_shift: NotNegative = 5.0,
        max_local_shift: NotNegative = 0.5,
        max_scale: Factor = 1.03,
        centred: bool = False,
    ):
        super().__init__(size, of)
        if of.extrapolates == "no":
            self.extrapolates = "yes"
        check_reads_positions(of, "to move them changes nothing")
        if of.integer_positions:
            raise ValueError(
                f"{of.name!r} takes integer positions from 0 on only, and cape makes fractions of them"
            )
        self.max_global_shift = max_global_shift
        self.max_local_shift = max_local_shift
        self.max_scale = max_scale
        self.centred = centred and not of.relative
        # A shift of all positions goes with the mean.
        self.relative = of.relative or centred
        self.position_key = ("augmented", of.position_key)

    @property
    def max_cached_length(self) -> int | None:
        return 0 if self.centred else self.of.max_cached_length

    def uses(self, hook: str) -> bool:
        return self.of.uses(hook) or (hook == "positions" and (self.training or self.centred))

    def positions(self, ids: Tensor, batch: int) -> Tensor:
        if self.centred:
            ids = ids - mean_position(ids)
        if self.training:
            ids = self._augmented(ids.float(), batch)
        return self.of.positions(ids, batch)

    def _augmented(self, pos: Tensor, batch: int) -> Tensor:
        drawn = 2 * self.random(batch, 2 + pos.shape[-1], pos.device) - 1
        shift, scale, jitter = drawn[:, :1], drawn[:, 1:2], drawn[:, 2:]
        moved = pos + shift * self.max_global_shift + jitter * self.max_local_shift
        return moved * (scale * math.log(self.max_scale)).exp()


def mean_position(ids: Tensor) -> Tensor:
    """The mean over the real tokens of each sequence, [1] or [B,1].

    Padding has no position of its own: left of the tokens it stands where the first does, right of them where
    the last does. So each position counts once.
    """
    own = torch.ones_like(ids, dtype=torch.bool)
    own[..., 1:] = ids[..., 1:] != ids[..., :-1]
    return (ids * own).sum(-1, keepdim=True) / own.sum(-1, keepdim=True)
