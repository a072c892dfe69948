"""What an encoding made of others declares, from what they declare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zoo.encodings.base import Encoding


def _biased(parts: Sequence[Encoding]) -> list[Encoding]:
    return [one for one in parts if one.uses("bias")]


COMBINED: dict[str, Callable[[Sequence[Encoding]], Any]] = {
    # A claim is about the model, and so must hold in every part.
    "relative": lambda parts: all(one.relative for one in parts),
    "extrapolates": lambda parts: min((one.extrapolates for one in parts), key=("no", "policy", "yes").index),
    "reads_positions": lambda parts: any(one.reads_positions for one in parts),
    "integer_positions": lambda parts: any(one.integer_positions for one in parts),
    "per_layer": lambda parts: any(one.per_layer for one in parts),
    "distance_only": lambda parts: bool(_biased(parts)) and all(one.distance_only for one in _biased(parts)),
    "fused": lambda parts: all(one.fused for one in _biased(parts)),
    # In a list with another encoding; in one group of heads there is no other.
    "lacks_offset": lambda parts: any(one.lacks_offset for one in parts),
    "needs_offset": lambda parts: any(one.needs_offset for one in parts if one.uses("weights")),
    "rotation_is_final": lambda parts: all(one.rotation_is_final for one in parts if one.uses("rotate")),
}
"""The declarations that an encoding takes from its parts, one for each group of heads or each layer."""
