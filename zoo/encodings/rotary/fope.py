"""Fourier position embedding (FoPE)."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.encodings.base import Size
from zoo.encodings.rotary.rope import RoPE
from zoo.encodings.rotary.rotation import angles
from zoo.recipe.fields import AboveOne, NotNegative
from zoo.registry import register
from zoo.seeds import seed_of


@register("fope")
class FoPE(RoPE):
    """RoPE whose pairs turn by sums of sines, without the slow ones that see no full turn in training.

    Pairs with a frequency f_k below 2 pi / L, L the trained length, do not turn. The cosine of each other
    pair m becomes cos(p f_m) + sum_k a_km cos(p f_k) over all n pairs that turn, its sine the same sum of
    sines with coefficients b_km. The coefficients are fixed random numbers of each layer and head, normal
    with deviation gain sqrt(2 / (n (n + H))) for H heads.

    Options:
        base: the slowest pair of RoPE turns once in about 2 pi base tokens.
        layout: pairs are `half` (k, k + D/2) or `interleaved` (2k, 2k+1).
        gain: the size of the coefficients; 0 mixes nothing. The authors take 0.3 for 60 M parameters, 0.4
            for 180 M and 0.6 for 1.2 B.

    Sums of sines are not a rotation: scores depend on more than the distance. The deviation is the one that
    `xavier_normal_` gives the authors' tensor [H,n,n]; the paper names the gain sigma. Their code
    (github.com/yiju-zhao/Fourier-Position-Embedding, `olmo/model.py`) differs in two ways: pairs that do not
    turn get sin = cos = 1 in place of sin = 0, which makes them longer by sqrt(2), and at most half of all
    pairs turn. Checked against a loop over the formula, and with gain 0 against rope.
    """

    formula = (
        r"\cos p f_m \to \cos p f_m + \sum_k a_{km} \cos p f_k,\quad"
        r"\sin p f_m \to \sin p f_m + \sum_k b_{km} \sin p f_k,"
        r"\qquad f_k \ge 2\pi/L;\quad f_m = 0 \text{ below}"
    )
    paper = "Hua et al. 2024 (arXiv:2412.17739)"
    relative = False
    extrapolates = "yes"
    after_training = ()
    per_layer = True

    def __init__(
        self,
        size: Size,
        *,
        base: AboveOne = 10000.0,
        layout: Literal["half", "interleaved"] = "half",
        gain: NotNegative = 0.3,
    ):
        super().__init__(size, base=base, layout=layout)
        turning = int((self.frequency >= 2 * math.pi / size.length).sum())
        self.frequency = self.frequency[:turning].clone()
        group = [size.first_head] if size.first_head else []
        generator = torch.Generator().manual_seed(seed_of("fope", size.layer, *group))
        draws = torch.randn(2, size.num_heads, turning, turning, generator=generator)
        deviation = gain * math.sqrt(2 / max(1, turning * (turning + size.num_heads)))
        self.register_buffer("mixing", torch.eye(turning) + deviation * draws, persistent=False)

    def cos_sin(
        self,
        pos: Tensor,
        k_pos: Tensor,
        keep: Tensor | None = None,
        documents: Tensor | None = None,
        first: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """The sums at positions `pos`, [H,T,D/2] or [B,H,T,D/2], float32."""
        angle = angles(pos, self.frequency)
        still = (0, self.size.head_dim // 2 - len(self.frequency))
        with torch.autocast(pos.device.type, enabled=False):
            cos, sin = angle.cos() @ self.mixing[0], angle.sin() @ self.mixing[1]
        return F.pad(cos, still, value=1.0), F.pad(sin, still)
