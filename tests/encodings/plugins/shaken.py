"""The hook `positions`: places that are drawn anew at every step of training."""

from torch import Tensor

import zoo


@zoo.register("shaken")
class Shaken(zoo.Wrapper):
    """In training a sequence begins at a random position, another for each sequence of a batch.

    Options:
        of: the encoding whose positions these are.
        most: the largest first position, in tokens.
    """

    paper = "Kiyono et al. 2021 (arXiv:2109.05644)"
    family = "position ids"

    def __init__(self, size: zoo.Size, *, of: zoo.Encoding, most: int = 500):
        super().__init__(size, of)
        self.most = most

    def positions(self, ids: Tensor, batch: int) -> Tensor:
        if self.training:
            ids = ids + (self.random(batch, 1, ids.device) * (self.most + 1)).long()
        return super().positions(ids, batch)
