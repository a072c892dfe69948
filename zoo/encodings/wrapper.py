"""An encoding around another."""

from torch import Tensor

from zoo.encodings.base import AttentionContext, Encoding, Size

FOLLOWED = (
    "relative",
    "extrapolates",
    "distance_only",
    "fused",
    "reads_positions",
    "integer_positions",
    "position_key",
    "per_layer",
)
"""The attributes that a wrapper takes from what it wraps."""


class Wrapper(Encoding):
    """The base of encodings that change one thing about another encoding.

    Every hook, limit and attribute is that of the wrapped encoding unless a subclass overrides it.
    """

    def __init__(self, size: Size, of: Encoding):
        super().__init__(size)
        self.of = of
        for fact in FOLLOWED:
            setattr(self, fact, getattr(of, fact))
        self.rotation_is_final = of.rotation_is_final and type(self).rotate is Wrapper.rotate

    @property
    def max_length(self) -> int | None:
        return self.of.max_length

    @property
    def max_cached_length(self) -> int | None:
        return self.of.max_cached_length

    @property
    def num_positions(self) -> int | None:
        return self.of.num_positions

    def uses(self, hook: str) -> bool:
        """Whether the subclass or the wrapped encoding does anything in the hook."""
        same = ("bias", "bias_table") if hook == "bias" else (hook,)
        own = any(getattr(type(self), one) is not getattr(Wrapper, one) for one in same)
        return own or self.of.uses(hook)

    def positions(self, ids: Tensor, batch: int) -> Tensor:
        return self.of.positions(ids, batch)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return self.of.embed(x, pos)

    def read(self, x: Tensor) -> Tensor | None:
        return self.of.read(x)

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        return self.of.rotate(q, k, context)

    def bias(self, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.of.bias(head, q, k)

    def bias_table(self, context: AttentionContext, num_heads: int) -> Tensor:
        if type(self).bias is not Wrapper.bias:
            return super().bias_table(context, num_heads)
        return self.of.bias_table(context, num_heads)

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor | None:
        return self.of.score(q, k, context)

    def key_score(self, k: Tensor, context: AttentionContext) -> Tensor | None:
        own = type(self).bias is not Wrapper.bias or type(self).score is not Wrapper.score
        return None if own else self.of.key_score(k, context)

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        return self.of.logits(logits, q, k, context)

    def value(self, weights: Tensor, context: AttentionContext) -> Tensor | None:
        return self.of.value(weights, context)


def check_reads_positions(of: Encoding, otherwise: str) -> None:
    """Raises ValueError if an encoding reads no positions."""
    if not of.reads_positions:
        raise ValueError(f"{of.name!r} reads no positions: {otherwise}")
