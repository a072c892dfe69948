"""The differences between two recipes, and where runs may differ."""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterable
from typing import Any

from zoo import registry
from zoo.recipe.fields import Affects, Section
from zoo.recipe.schema import Recipe
from zoo.recipe.trainer import LIGHTNING_FLAGS

ENCODING = "model.encoding"
MAX_STEPS = "trainer.max_steps"

COMPARED = (ENCODING, "name", "seed")
"""Keys at which comparable runs may differ, although they make another run."""
FIXED = (*COMPARED, "trainer.limit_val_batches")
"""Keys that a resume must not change although they do not affect the weights, so that all scores of a run
stay comparable."""

Change = tuple[str, Any, Any]
"""A dotted key, and its value in one recipe and in another."""


def diff(old: object, new: object, key: str = "") -> list[Change]:
    """Every key at which two recipes differ, with both values; None where one has no such key."""
    if isinstance(old, dict) and isinstance(new, dict):
        rows = []
        for part in [*old, *(k for k in new if k not in old)]:
            rows += diff(old.get(part), new.get(part), f"{key}.{part}" if key else str(part))
        return rows
    return [] if old == new else [(key, old, new)]


def flatten(value: Any, key: str = "") -> dict[str, Any]:
    """Nested mappings, and lists of such, as one mapping with dotted keys."""
    if isinstance(value, dict) and value:
        parts: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
        parts = enumerate(value)
    else:
        return {key: value}
    return {
        k: v for name, part in parts for k, v in flatten(part, f"{key}.{name}" if key else str(name)).items()
    }


def is_among(key: str, keys: Iterable[str]) -> bool:
    """Whether a recipe key is one of these, or below one of them."""
    return any(key == one or key.startswith(one + ".") for one in keys)


def affects(key: str) -> Affects:
    """The metadata of a key's field, or of the nearest above it; by default it decides the weights."""
    declared = _declared()
    while key and key not in declared:
        key = key.rpartition(".")[0]
    return declared.get(key, Affects("weights"))


def may_differ_between_runs(key: str) -> bool:
    """Whether comparable runs may have other values of a key."""
    return is_among(key, COMPARED) or affects(key).effect != "weights"


def may_change_on_resume(key: str) -> bool:
    """Whether a resumed run may have another value of a key. `trainer.max_steps` depends on the run."""
    return not is_among(key, FIXED) and affects(key).effect != "weights"


def is_recorded_on_resume(key: str) -> bool:
    """Whether the card of a resumed run records a change of a key, with the step at which it came."""
    return key == MAX_STEPS or affects(key).effect in ("results", "rounding")


def changes_rounding(key: str) -> bool:
    """Whether another value of a key changes the weights by rounding and random draws alone."""
    return affects(key).effect == "rounding"


def decides_speed(key: str) -> bool:
    """Whether times measured with other values of a key cannot be compared."""
    return key == "data.workers" or changes_rounding(key)


def may_change_after_training() -> tuple[str, ...]:
    """The keys that may be set when a trained model is evaluated, the encoding's own apart."""
    return tuple(key for key, one in _declared().items() if one.after_training)


def _declared() -> dict[str, Affects]:
    """The metadata of the fields of the schema and of the options of all registered classes, by key."""
    kinds = (registry.datasets, registry.tasks, registry.optimizers, registry.schedules)
    return _declared_by(tuple(one for kind in kinds for one in kind.all().values()))


@functools.lru_cache(maxsize=8)
def _declared_by(registered: tuple[registry.Description, ...]) -> dict[str, Affects]:
    found: list[tuple[str, Any]] = [(f"trainer.{key}", [one]) for key, one in LIGHTNING_FLAGS.items()]
    for name, field in Recipe.model_fields.items():
        found.append((name, field.metadata))
        # An annotation is a section, or has metadata of its own around one.
        for section in typing.get_args(field.annotation) or (field.annotation,):
            if isinstance(section, type) and issubclass(section, Section):
                found += [(f"{name}.{key}", inner.metadata) for key, inner in section.model_fields.items()]
    sections = {"dataset": "data", "task": "task", "optimizer": "optimizer", "schedule": "optimizer"}
    for about in registered:
        for option in about.options:
            own = getattr(option.annotation, "__metadata__", ())
            found.append((f"{sections[about.kind]}.{option.name}", own))
    return {key: one for key, metadata in found for one in metadata if isinstance(one, Affects)}


def refused_on_resume(stored: dict[str, Any], recipe: Recipe) -> list[Change]:
    """The differences to a run's stored recipe that would make another run, `trainer.max_steps` apart.

    `auto` is what the run has.
    """
    return [
        row
        for row in diff(stored, recipe.as_dict())
        if not (row[0] == MAX_STEPS or may_change_on_resume(row[0]) or row[2] == "auto")
    ]


def recorded_on_resume(stored: dict[str, Any], recipe: Recipe) -> list[Change]:
    """The differences to a run's stored recipe that the card of the resumed run records."""
    return [row for row in diff(stored, recipe.as_dict()) if is_recorded_on_resume(row[0])]
