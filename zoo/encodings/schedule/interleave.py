"""An encoding for each layer."""

from zoo.encodings.base import Encoding, Size
from zoo.encodings.combined import COMBINED
from zoo.encodings.wrapper import Wrapper
from zoo.registry import register


@register("interleave")
class Interleave(Wrapper):
    """Layers take turns: layer l has the encoding pattern[l % len(pattern)], and nothing of the others.

    Options:
        pattern: the encodings, the first layer's first; `[rope, rope, rope, none]` in the paper's model. One
            that adds to the token vectors before the first layer belongs to no layer and is refused: combine
            it with the others in a list, `encoding: [sinusoidal, {name: interleave, ...}]`. No more of them
            than layers.

    This is the encodings' part of the paper's model (RNoPE-SWA) and no more: its rotary layers see a sliding
    window, and only the others the whole sequence, which is `model.window: [W, W, W, null]`.
    Each layer has its own copy of parameters that other encodings share, such as the table of t5.
    Checked against models in which every layer has the same encoding, layer by layer.
    """

    formula = r"E_l = \mathrm{pattern}[\,l \bmod n\,],\qquad l = 0, 1, 2, \ldots"
    paper = "Yang et al. 2025 (arXiv:2501.18795)"
    family = "schedule"
    per_layer = True

    def __init__(self, size: Size, *, pattern: list[Encoding]):
        if not pattern:
            raise ValueError("pattern must hold at least one encoding")
        if len(pattern) > size.num_layers:
            raise ValueError(
                f"pattern has {len(pattern)} entries but num_layers is {size.num_layers}; the last "
                f"{len(pattern) - size.num_layers} are unused"
            )
        embedding = [one.name for one in pattern if one.uses("embed")]
        if embedding:
            raise ValueError(
                f"{embedding[0]!r} acts on the token embeddings, before the first layer; combine it by "
                f"a list, `encoding: [{embedding[0]}, {{name: interleave, ...}}]`"
            )
        index = (size.layer or 0) % len(pattern)
        super().__init__(size, pattern[index])
        self.per_layer = True
        # A claim is about the model, and so must hold in every layer.
        for claim in ("relative", "extrapolates", "reads_positions", "integer_positions"):
            setattr(self, claim, COMBINED[claim](pattern))
        if self.of.position_key is not None:
            self.position_key = (index, self.of.position_key)
