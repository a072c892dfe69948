"""Evaluation protocols: what of a text or a task is scored at a length, and with which context."""

from __future__ import annotations

from zoo.evaluation.protocols.accuracy import Accuracy
from zoo.evaluation.protocols.fixed_targets import FixedTargets
from zoo.evaluation.protocols.nonoverlapping import Nonoverlapping
from zoo.evaluation.protocols.per_position import PerPosition
from zoo.evaluation.protocols.protocol import Protocol
from zoo.evaluation.protocols.sliding import Sliding

PROTOCOLS: dict[str, Protocol] = {
    "nonoverlapping": Nonoverlapping(),
    "sliding": Sliding(),
    "fixed_targets": FixedTargets(),
    "per_position": PerPosition(),
    "accuracy": Accuracy(),
}
