"""Evaluation protocols: what of a text or a task is scored at a length, and with which context."""

from __future__ import annotations

from zoo import registry
from zoo.evaluation.protocols.protocol import Protocol
from zoo.recipe.sections import EvaluateConfig, construct

__all__ = ["Protocol", "build_protocol"]


def build_protocol(name: str, config: EvaluateConfig) -> Protocol:
    """A protocol with its options under `evaluate`. Raises InputError where its code cannot be used."""
    return construct(registry.protocols, name, config)
