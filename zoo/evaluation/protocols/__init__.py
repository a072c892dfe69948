"""Evaluation protocols: what of a text or a task is scored at a length, and with which context.

A protocol is a file with `measurements(task, source, lengths)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zoo.data.source import DataSource
from zoo.evaluation.protocols import accuracy, fixed_targets, nonoverlapping, per_position, sliding
from zoo.evaluation.protocols.protocol import Measurement, OutOfTime, Place, Row
from zoo.tasks.task import Task

__all__ = ["PROTOCOLS", "Measurement", "OutOfTime", "Place", "Row"]

PROTOCOLS: dict[str, Callable[[Task, DataSource, Sequence[int]], list[Measurement]]] = {
    "nonoverlapping": nonoverlapping.measurements,
    "sliding": sliding.measurements,
    "fixed_targets": fixed_targets.measurements,
    "per_position": per_position.measurements,
    "accuracy": accuracy.measurements,
}
