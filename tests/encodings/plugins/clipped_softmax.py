"""The hook `weights`: a softmax that gives exactly nothing to keys with little weight."""

from torch import Tensor

import zoo
from zoo.recipe.fields import Fraction


@zoo.register("clipped_softmax")
class ClippedSoftmax(zoo.Encoding):
    """A head may attend to nothing: small weights are cut to 0.

    w = clip((1 + cut) softmax(z) - cut, 0, 1). A row sums to one at most.

    Options:
        cut: taken from each weight.
    """

    paper = "Bondarenko, Nagel, Blankevoort 2023 (arXiv:2306.12929)"
    family = "weights"
    relative = True
    reads_positions = False
    needs_offset = False

    def __init__(self, size: zoo.Size, *, cut: Fraction = 0.03):
        super().__init__(size)
        self.cut = cut

    def weights(self, logits: Tensor, context: zoo.AttentionContext) -> Tensor:
        return ((1 + self.cut) * super().weights(logits, context) - self.cut).clamp(0, 1)
