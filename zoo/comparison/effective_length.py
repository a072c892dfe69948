"""The longest length at which a model is still about as good as at its trained length."""

from __future__ import annotations

from collections.abc import Mapping

SHARE_KEPT = 0.85
"""Of the accuracy at the trained length: the rule of NoLiMa (Modarressi et al. 2025, arXiv:2502.05167)."""
LEARNED = 0.5
"""A task with a lower accuracy at the trained length is not learned, and has no effective length."""
NATS_LOST = 0.05
"""Per token, above the loss at the trained length."""


def effective_length(
    protocol: str, measure: str, trained: int, scores: Mapping[int, Mapping[str, float | None]]
) -> tuple[int | None, bool]:
    """The largest tested length up to which every tested length, from the trained one on, keeps its score.

    An accuracy keeps `SHARE_KEPT` of the one at the trained length. A loss exceeds the one at the trained
    length by at most `NATS_LOST`, and counts under `fixed_targets` only: in other protocols longer windows
    lower the loss of any model.

    Args:
        scores: the measures at each length, with the mean of the main measure as `mean`.

    Returns: the length, None where it is not defined; and whether it is only a lower bound, because the score
        is kept at every tested length.

    >>> scores = {64: {"mean": 1.0}, 128: {"mean": 0.9}, 256: {"mean": 0.5}}
    >>> effective_length("accuracy", "accuracy", 64, scores)
    (128, False)
    """
    lengths = sorted(length for length in scores if length >= trained)
    column = "mean" if measure == "accuracy" else "loss_nats"
    base = scores[trained].get(column) if trained in scores else None
    if base is None or not (base >= LEARNED if measure == "accuracy" else protocol == "fixed_targets"):
        return None, False

    def kept(length: int) -> bool:
        score = scores[length].get(column)
        if score is None:
            return False
        return score >= SHARE_KEPT * base if measure == "accuracy" else score <= base + NATS_LOST

    lost = next((index for index, length in enumerate(lengths) if not kept(length)), len(lengths))
    return lengths[lost - 1], lost == len(lengths)
