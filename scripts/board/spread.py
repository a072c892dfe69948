"""How much a seed changes a difference on text, from the encodings that have several seeds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from scipy.special import stdtrit

from zoo.comparison.paired import FEWEST_SEEDS, Sample, mean_over_lengths

RISING = 0.2
"""The standard deviation over seeds of an encoding whose loss rises with the length, as a share of the rise.

Chosen on a former setting of text, in which 24 encodings had three seeds (scripts/results/text at commit
450b08b9f2). From one seed and the spread of none, t5, alibi and fox, 95 % intervals with this share missed
the difference in the other two seeds in 0.4 % of the pairs without an encoding that rises by 5 % or more, and
in 4 % of those with one; without it, in 5 % and 71 %."""


@dataclass(frozen=True)
class Spread:
    """How much a seed changes the loss of one encoding, apart from what it does to all of them.

    Attributes:
        losses: of the encodings with several seeds; rows are seeds, columns encodings.
    """

    losses: pd.DataFrame

    @property
    def freedom(self) -> int:
        """The degrees of freedom of `sd`."""
        return (self.losses.shape[0] - 1) * (self.losses.shape[1] - 1)

    @property
    def sd(self) -> float:
        """The standard deviation of the residuals, without the means of seeds and of encodings."""
        table = self.losses.to_numpy()
        residuals = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
        return math.sqrt((residuals**2).sum() / self.freedom)

    def margin(self, rises: Sequence[float] = (0.0, 0.0), seeds: int = 1) -> float:
        """Half of the 95 % interval over seeds of the paired difference of two encodings.

        Args:
            rises: how much the loss of each of the two rises beyond the trained length.
        """
        sd = math.hypot(*(max(self.sd, RISING * rise) for rise in rises))
        return float(stdtrit(self.freedom, 0.975)) * sd / math.sqrt(seeds)


def seed_spread(samples: Mapping[str, Mapping[int, Sample]], lengths: Collection[int]) -> Spread | None:
    """The spread of the losses averaged over lengths, of the encodings with at least `FEWEST_SEEDS`."""
    read = {name: mean_over_lengths([own[at] for at in lengths])
            for name, own in samples.items() if own.keys() >= {*lengths}}  # fmt: skip
    each = {name: one.values for name, one in read.items() if len(one.values) >= FEWEST_SEEDS}
    spread = Spread(pd.DataFrame(each).dropna())
    return spread if each and spread.freedom > 0 else None
