"""The relative position bias of T5."""

import math

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.recipe.fields import AboveZero
from zoo.registry import register


@register("t5")
class T5Bias(Encoding):
    """A learned bias for each head and bucket of distances, shared by all layers.

    Near distances have a bucket each, farther ones share buckets that grow logarithmically up to
    max_distance; all beyond share the last. An encoder gives half of the buckets to each direction.

    Options:
        num_buckets: rows of the table.
        max_distance: where the last bucket begins, in tokens.
        gain: factor of the table; null for sqrt(D), as in `x_transformers`, and 1 for the bare table.

    T5 leaves its scores unscaled and trains with a step relative to the size of a parameter. Here scores are
    scaled by 1/sqrt(D), and a step of Adam moves a number by at most the learning rate: without a gain, a
    short training ends before the bias is large enough to matter. The bias starts from N(0, 1/sqrt(E))
    with any gain. Checked against `transformers` (T5Attention) and `x_transformers`
    (RelativePositionBias).
    """

    formula = r"b_{ij} = \sqrt{D}\,B_{h,\, r(i-j)},\qquad r \text{ exact near, logarithmic beyond}"
    paper = "Raffel et al. 2020 (arXiv:1910.10683)"
    family = "bias"
    relative = True
    extrapolates = "yes"
    distance_only = True
    integer_positions = True

    def __init__(
        self, size: Size, *, num_buckets: int = 32, max_distance: int = 128, gain: AboveZero | None = None
    ):
        super().__init__(size)
        # Half of a direction's buckets hold one distance each; there must be one, and room for a logarithm.
        self.one_way = num_buckets if size.causal else num_buckets // 2
        if self.one_way < 2 or (not size.causal and num_buckets % 2):
            raise ValueError(f"num_buckets must be even and leave two for each direction, not {num_buckets}")
        self.exact = self.one_way // 2
        if max_distance <= self.exact:
            raise ValueError(
                f"max_distance must be above {self.exact}, half of a direction's buckets, not {max_distance}"
            )
        self.max_distance = max_distance
        self.gain = math.sqrt(size.head_dim) if gain is None else gain
        start = torch.randn(num_buckets, size.num_heads) / math.sqrt(size.d_model)
        self.table = nn.Parameter(start / self.gain)

    def bias(self, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.gain * self.table[self.bucket(q - k), head]

    def bucket(self, back: Tensor) -> Tensor:
        """The row of the table for a key that lies `back` tokens before the query."""
        if self.size.causal:
            offset, distance = torch.zeros_like(back), back.clamp(min=0)
        else:
            offset, distance = (back < 0).long() * self.one_way, back.abs()
        # The clamp keeps the logarithm finite where its result is not used.
        ratio = distance.clamp(min=1).float() / self.exact
        step = (self.one_way - self.exact) / math.log(self.max_distance / self.exact)
        far = self.exact + (ratio.log() * step).long()
        return (offset + torch.where(distance < self.exact, distance, far.clamp(max=self.one_way - 1))).long()
