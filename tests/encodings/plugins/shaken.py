"""The hook `positions`: places that are drawn anew at every step of training."""

import torch
from torch import Tensor

import zoo


@zoo.register("shaken")
class Shaken(zoo.Encoding):
    """In training a sequence begins at a random position, another for each sequence of a batch.

    Alone it does nothing; it goes before an encoding that reads positions.

    Options:
        most: the largest first position, in tokens.
    """

    paper = "Kiyono et al. 2021 (arXiv:2109.05644)"
    family = "position ids"
    relative = True

    def __init__(self, size: zoo.Size, *, most: int = 500):
        super().__init__(size)
        self.most = most

    def positions(self, ids: Tensor, batch: int) -> Tensor:
        if not self.training:
            return ids
        return ids + torch.randint(self.most + 1, (batch, 1), device=ids.device)
