"""Rotary position embedding (RoPE)."""

import math
from typing import Literal

import torch
from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.rope_scaling import READ_BY, Scaling
from zoo.encodings.rotary.rotation import angles, turn
from zoo.recipe.fields import AboveOne, AboveZero, Factor, Fraction
from zoo.registry import register


@register("rope")
class RoPE(Encoding):
    """Queries and keys are rotated by their position, so that their product depends on their distance alone.

    Pair k of a head's R rotated dimensions turns by the angle p f_k at position p, f_k = base^(-2k/R). A
    scaling by s = `factor` changes the frequencies f so that a model trained on L = `original_length` tokens
    reads s L; r is the number of turns that a pair makes in L tokens.

    Options:
        base: the slowest pair turns once in about 2 pi base tokens.
        layout: pairs are `half` (k, k + R/2), as in GPT-NeoX and Llama's Hugging Face port, or `interleaved`
            (2k, 2k+1), as in RoFormer, GPT-J and Meta's Llama. A permutation of the head width apart.
        partial: the fraction of the head width that is rotated, its first dimensions; the rest is not
            rotated.
        proportion: the fraction of the pairs that turns, the fastest; the others have frequency 0, and the
            frequencies are those of all pairs (p-RoPE). 0 is `none`.
        imaginary: whether queries are turned a quarter less, q sin - rot(q) cos. RoPE's product of a pair is
            the real part of q k* e^(i f (i - j)), with q and k as complex numbers; this one is the imaginary
            part. `{name: heads, of: [rope, {name: rope, imaginary: true}]}` has half of the heads of each
            kind. It is not RoPE++ as published (Liu et al. 2025, arXiv:2512.07525), whose forms EC and EH
            give each q and k to two heads, one of each kind.
        scaling: `none`; `linear`, f/s (position interpolation); `ntk`, a base of base s^(R/(R-2));
            `dynamic_ntk`, the same beyond L with 1 + s (length/L - 1) for s; `yarn`, f where r is above
            beta_fast, f/s where it is below beta_slow, a ramp over the pairs between; `longrope`, f divided
            by a list, another one beyond L; `llama3`, f where r is above high_freq_factor, f/s where it is
            below low_freq_factor, linear in r between; `proportional`, f/s, the name that `transformers`
            gives to `proportion` with `linear`; `resonance`, those of `yarn`, and of RoPE with factor 1,
            changed so that each pair turns once in an integer number of tokens.
        factor: s, how many times longer; at least 1.
        original_length: L, in tokens; by default the trained length.
        attention_factor: of `yarn`, `resonance` and `longrope`, multiplies queries and keys; by default
            0.1 ln s + 1 and, of `longrope`, sqrt(1 + ln s / ln L).
        beta_fast: of `yarn` and `resonance`, in turns.
        beta_slow: of `yarn` and `resonance`, in turns.
        truncate: of `yarn` and `resonance`, whether the ramp begins and ends at an integer number of pairs,
            as published.
        low_freq_factor: of `llama3`, in turns.
        high_freq_factor: of `llama3`, in turns.
        short_factor: of `longrope`, the divisor of each pair up to L tokens; by default 1.
        long_factor: of `longrope`, the divisor of each pair beyond; by default s, as in `linear`.

    An option of another scaling than the one chosen is refused. With `dynamic_ntk` and `longrope` every angle
    depends on the length of the sequence, from its first position to its last; each sequence of a batch
    counts its own. A token decoded beyond L would change the angles under which the tokens before it have
    already looked at one another: there a cache is refused.

    Angles are computed in float32. Checked against `transformers`
    (LlamaRotaryEmbedding, GPTNeoXRotaryEmbedding and each of ROPE_INIT_FUNCTIONS), a rotation of complex
    numbers, and a loop over the formula of each scaling: Chen et al. 2023 (arXiv:2306.15595, linear), Peng
    et al. 2023 (arXiv:2309.00071, ntk and yarn), Ding et al. 2024 (arXiv:2402.13753, longrope), Grattafiori
    et al. 2024 (arXiv:2407.21783, llama3), Barbero et al. 2024 (arXiv:2410.06205, proportional), Wang et al.
    2024 (arXiv:2403.00071, resonance; once also against the frequencies of
    github.com/sheryc/resonance_rope, which are equal, and its table of cosines at 400 positions, to 4e-5).
    `imaginary` was once compared with the authors' mode `imagh` (github.com/OpenMOSS/rope_pp), which gives it
    to half of the heads as above: equal to 5e-7 at 512 positions.
    """

    formula = (
        r"a_{ij} = \frac{(R_i q_i) \cdot (R_j k_j)}{\sqrt{D}},"
        r"\qquad R_p \text{ turns pair } k \text{ by } p\,\mathrm{base}^{-2k/R}"
    )
    paper = "Su et al. 2021 (arXiv:2104.09864)"
    family = "rotary"
    relative = True
    extrapolates = "no"
    after_training = ("base", "scaling", *READ_BY)

    def __init__(
        self,
        size: Size,
        *,
        base: AboveOne = 10000.0,
        layout: Literal["half", "interleaved"] = "half",
        partial: Fraction = 1.0,
        proportion: Fraction = 1.0,
        imaginary: bool = False,
        scaling: Literal[
            "none", "linear", "ntk", "dynamic_ntk", "yarn", "longrope", "llama3", "proportional", "resonance"
        ] = "none",
        factor: Factor = 1.0,
        original_length: int | None = None,
        attention_factor: AboveZero | None = None,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        truncate: bool = True,
        low_freq_factor: float = 1.0,
        high_freq_factor: float = 4.0,
        short_factor: list[AboveZero] | None = None,
        long_factor: list[AboveZero] | None = None,
    ):
        super().__init__(size)
        self.layout = layout
        self.imaginary = imaginary
        width = rotated_width(size, partial)
        self.scaling = Scaling(
            rule=scaling,
            width=width,
            # The small addend undoes the rounding of fractions such as 0.29.
            turning=math.floor(proportion * width / 2 + 1e-9),
            base=base,
            factor=factor,
            trained_length=size.length,
            original_length=original_length,
            attention_factor=attention_factor,
            beta_fast=beta_fast,
            beta_slow=beta_slow,
            truncate=truncate,
            low_freq_factor=low_freq_factor,
            high_freq_factor=high_freq_factor,
            short_factor=short_factor,
            long_factor=long_factor,
        )
        self.rotation_is_final = not self.scaling.depends_on_length
        self.register_buffer("frequency", self.scaling.frequency(), persistent=False)
        self.register_buffer("long_frequency", self.scaling.long_frequency(), persistent=False)

    @property
    def max_cached_length(self) -> int | None:
        return self.scaling.full_length if self.scaling.depends_on_length else None

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        def at(pos: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
            return self.cos_sin(pos, context.k_pos, context.keep, context.documents, first)

        q_turn = context.once(self, context.q_pos, lambda pos: at(pos, context.query_offset))
        k_turn = context.once(self, context.k_pos, at)
        return self.turn_queries(q, *q_turn), turn(k, *k_turn, self.layout)

    def turn_queries(self, q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Queries [B,H,T,D], turned by the angles of `cos_sin`."""
        return turn(q, *((sin, -cos) if self.imaginary else (cos, sin)), self.layout)

    def cos_sin(
        self,
        pos: Tensor,
        k_pos: Tensor,
        keep: Tensor | None = None,
        documents: Tensor | None = None,
        first: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """The cos and sin for queries or keys at positions `pos`, in a sequence whose keys stand at `k_pos`.

        `keep` and `documents` are as of `AttentionContext`; `first` is the row of `pos` among the keys.

        For `turn`: [T,R/2] or [B,1,T,R/2], float32, the attention factor included.
        """
        frequency = self.frequency
        if self.scaling.depends_on_length:
            with torch.autocast(pos.device.type, enabled=False):
                length = extent(k_pos, keep, documents)
                length = length if documents is None else length[:, first : first + pos.shape[-1]]
                frequency = self.scaling.frequency_at(length, frequency, self.long_frequency)
        angle = angles(pos, frequency)
        by = self.scaling.attention()
        return angle.cos() * by, angle.sin() * by


def extent(pos: Tensor, keep: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
    """How many tokens a sequence spans, of positions [S] or [B,S]: [1] or [B,1], or of each token's document,
    [B,S].

    From its first position, so that a shift of all changes nothing.
    """
    if documents is not None:
        ends = (pos.scatter_reduce(1, documents, pos, by) for by in ("amax", "amin"))
        last, first = (end.gather(1, documents) for end in ends)
        return last - first + 1
    if keep is None:
        return pos.amax(-1, keepdim=True) - pos.amin(-1, keepdim=True) + 1
    far = 2**40
    pos = pos.expand_as(keep)
    # A sequence that is nothing but padding spans one.
    span = pos.masked_fill(~keep, -far).amax(-1, True) - pos.masked_fill(~keep, far).amin(-1, True)
    return span.clamp(min=0) + 1


def rotated_width(size: Size, partial: float) -> int:
    """The number of dimensions of a head that are rotated; raises ValueError where it is odd or none."""
    width = round(partial * size.head_dim)
    if width % 2 or width == 0:
        part = f"{partial:g} of a head of width {size.head_dim}"
        raise ValueError(f"rope rotates pairs: {part} is {width}, not an even number")
    return width
