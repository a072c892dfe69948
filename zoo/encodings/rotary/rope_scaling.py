"""Changes of the frequencies of RoPE so that a trained model can read longer sequences."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from zoo.encodings.rotary.rotation import frequencies

READ_BY = {
    "factor": ("linear", "ntk", "dynamic_ntk", "yarn", "longrope", "llama3", "proportional", "resonance"),
    "original_length": ("dynamic_ntk", "yarn", "longrope", "llama3", "resonance"),
    "attention_factor": ("yarn", "longrope", "resonance"),
    "beta_fast": ("yarn", "resonance"),
    "beta_slow": ("yarn", "resonance"),
    "truncate": ("yarn", "resonance"),
    "low_freq_factor": ("llama3",),
    "high_freq_factor": ("llama3",),
    "short_factor": ("longrope",),
    "long_factor": ("longrope",),
}
"""Scaling rules that use each parameter."""


@dataclass(frozen=True)
class Scaling:
    """A rule and its parameters, for R = `width` rotated dimensions; the options are those of `RoPE`.

    Raises ValueError for an invalid parameter.
    """

    rule: str
    width: int
    turning: int
    """The number of pairs that turn, the fastest; the others have frequency 0."""
    base: float
    trained_length: int
    factor: float = 1.0
    original_length: int | None = None
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factor: list[float] | None = None
    long_factor: list[float] | None = None

    def __post_init__(self):
        for figure in fields(self):
            read_by = READ_BY.get(figure.name)
            if read_by and self.rule not in read_by and getattr(self, figure.name) != figure.default:
                raise ValueError(
                    f"{figure.name} does nothing with scaling {self.rule}: it is for {', '.join(read_by)}"
                )
        if self.rule != "none" and self.full_length < 2:
            raise ValueError(f"original_length is in tokens, at least 2, not {self.full_length}")
        if self.rule in ("ntk", "dynamic_ntk") and self.width < 4:
            raise ValueError(f"scaling {self.rule} needs two pairs to rotate, and here there is one")
        for few, many in (("beta_slow", "beta_fast"), ("low_freq_factor", "high_freq_factor")):
            if not 0 < getattr(self, few) < getattr(self, many):
                raise ValueError(
                    f"{few} and {many} are turns in the original length, the second more than the first and "
                    f"both above 0, not {getattr(self, few)} and {getattr(self, many)}"
                )
        for name in ("short_factor", "long_factor"):
            factors, pairs = getattr(self, name), self.width // 2
            if factors is not None and len(factors) != pairs:
                raise ValueError(f"{name} lists a divisor for each of the {pairs} pairs, not {factors}")
        extra = self.attention_factor, self.short_factor, self.long_factor
        if (
            self.rule in ("linear", "ntk", "yarn", "longrope", "llama3")
            and self.factor == 1.0
            and extra == (None,) * 3
        ):
            raise ValueError(
                f"scaling {self.rule} with factor 1 changes nothing: set factor, how many times longer "
                f"sequences become, or scaling none"
            )

    @property
    def full_length(self) -> int:
        """L, in tokens: what the model was trained on, unless the recipe says otherwise."""
        return self.trained_length if self.original_length is None else self.original_length

    @property
    def depends_on_length(self) -> bool:
        """Whether the frequencies depend on the length of the sequence at hand."""
        return self.rule in ("dynamic_ntk", "longrope")

    def frequency(self) -> Tensor:
        """The frequencies up to the original length: [R/2], float32."""
        return self._of_turning(self._ruled())

    def _of_turning(self, frequency: Tensor) -> Tensor:
        """The same, with 0 for the pairs that stand still."""
        pair = torch.arange(self.width // 2, device=frequency.device)
        return torch.where(pair < self.turning, frequency, 0.0)

    def _ruled(self) -> Tensor:
        plain = frequencies(self.width, self.base)
        match self.rule:
            case "linear" | "proportional":
                return plain / self.factor
            case "ntk":
                return frequencies(self.width, self.ntk_base(self.factor))
            case "yarn" | "resonance":
                # lerp is exact at both ends, so that factor 1 changes no bit.
                slowed = torch.lerp(plain, plain / self.factor, self._yarn_ramp())
                turn = 2 * math.pi
                return slowed if self.rule == "yarn" else turn / (turn / slowed).round()
            case "llama3":
                turns = plain * (self.full_length / (2 * math.pi))
                low, high = self.low_freq_factor, self.high_freq_factor
                kept = ((turns - low) / (high - low)).clamp(0, 1)
                return torch.lerp(plain / self.factor, plain, kept)
            case "longrope" if self.short_factor is not None:
                return plain / torch.tensor(self.short_factor, dtype=torch.float32)
        return plain

    def frequency_at(self, length: Tensor, short: Tensor, long: Tensor | None) -> Tensor:
        """The frequencies for sequences of `length` tokens: [R/2] for one length [1], [...,R/2] for [...].

        `short` and `long` are what `frequency` and `long_frequency` gave.
        """
        length = length[..., None] if length.dim() > 1 else length
        if long is None:
            # Clamped, because below the original length the base would be that of a negative number.
            ratio = length.clamp(min=self.full_length).float() / self.full_length
            long = frequencies(self.width, self.ntk_base(self.factor * ratio - (self.factor - 1)))
            long = self._of_turning(long)
        return torch.where(length > self.full_length, long, short)

    def long_frequency(self) -> Tensor | None:
        """Frequencies of `longrope` beyond the original length; None for another rule."""
        if self.rule != "longrope":
            return None
        divisor = self.factor if self.long_factor is None else self.long_factor
        return self._of_turning(
            frequencies(self.width, self.base) / torch.tensor(divisor, dtype=torch.float32)
        )

    def ntk_base(self, factor: float | Tensor) -> float | Tensor:
        """The base at which the slowest pair turns `factor` times slower and the fastest as before."""
        return self.base * factor ** (self.width / (self.width - 2))

    def attention(self) -> float:
        """Factor of cos and sin; the scores are multiplied by its square."""
        if self.rule not in READ_BY["attention_factor"]:
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        if self.rule == "longrope":
            return math.sqrt(1 + math.log(self.factor) / math.log(self.full_length))
        return 0.1 * math.log(self.factor) + 1

    def _yarn_ramp(self) -> Tensor:
        """Share of interpolation of each pair: 0 for the fast ones, 1 for the slow ones, linear between."""

        def pair(turns: float) -> float:
            """The pair, not rounded, that turns so many times in the original length."""
            tokens_a_turn = self.full_length / (turns * 2 * math.pi)
            return self.width * math.log(tokens_a_turn) / (2 * math.log(self.base))

        low, high = pair(self.beta_fast), pair(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.width - 1)
        # The ramp must rise, however short the original length.
        high = max(high, low + 1e-3)
        return ((torch.arange(self.width // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
