"""An encoding around another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.combined import COMBINED
from zoo.encodings.context import AttentionContext

FOLLOWED = (*COMBINED, "reads_tokens", "position_key", "head_groups")
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

    def uses(self, hook: str) -> bool:
        """Whether the subclass or the wrapped encoding does anything in the hook."""
        same = ("bias", "bias_table") if hook == "bias" else (hook,)
        own = any(getattr(type(self), one) is not getattr(Wrapper, one) for one in same)
        return own or self.of.uses(hook)

    def bias_table(self, context: AttentionContext, num_heads: int) -> Tensor:
        if type(self).bias is not Wrapper.bias:
            return super().bias_table(context, num_heads)
        return self.of.bias_table(context, num_heads)

    def key_score(self, k: Tensor, context: AttentionContext) -> Tensor | None:
        own = type(self).bias is not Wrapper.bias or type(self).score is not Wrapper.score
        return None if own else self.of.key_score(k, context)


def _of_wrapped(hook: str) -> Callable[..., Any]:
    def call(self: Wrapper, *given: Any) -> Any:
        return getattr(self.of, hook)(*given)

    return call


for _hook in (
    "positions", "embed", "read", "values", "rotate", "bias", "score", "logits", "weights", "value", "output",
):  # fmt: skip
    setattr(Wrapper, _hook, _of_wrapped(_hook))
for _fact in ("max_length", "max_cached_length", "num_positions", "heads_with_positions"):
    setattr(Wrapper, _fact, property(lambda self, fact=_fact: getattr(self.of, fact)))


def check_reads_positions(of: Encoding, otherwise: str) -> None:
    """Raises ValueError if an encoding reads no positions."""
    if not of.reads_positions:
        raise ValueError(f"{of.name!r} reads no positions: {otherwise}")
