"""A run as a comparison knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zoo.evaluation.measurement import Measurement


@dataclass(frozen=True)
class RunInfo:
    """A run.

    Attributes:
        path: the folder as the user gave it.
        recipe: resolved; keys that are newer than the run have their defaults.
        measurements: of its last checkpoint.
        left_out: the other measurements, as text.
        speed: median of the logged training tokens per second; None where none were logged.
        grid: the values of each key from which a sweep chose this run's by validation.
    """

    path: str
    recipe: dict[str, Any]
    card: dict[str, Any]
    measurements: tuple[Measurement, ...] = ()
    left_out: tuple[str, ...] = ()
    speed: float | None = None
    grid: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        return self.recipe["seed"]

    @property
    def label(self) -> str:
        """Its encoding as text."""
        return str(self.card.get("encoding") or self.recipe["model"]["encoding"])
