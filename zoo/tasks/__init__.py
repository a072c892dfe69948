"""Tasks: LightningModules that say what a batch costs and what is measured."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo.tasks.task import Task

CLASSES = {
    "language_modelling": "LanguageModelling",
    "masked_language_modelling": "MaskedLanguageModelling",
    "max_index": "MaxIndex",
}


def task_class(name: str) -> type[Task]:
    """The LightningModule of a task; imports torch and Lightning."""
    return getattr(import_module(f"zoo.tasks.{name}"), CLASSES[name])
