"""What differs between two recipes, and where it may: what the fields of the schema say (`Differs`)."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterable
from typing import Any

from zoo import registry
from zoo.field_types import Differs, Section
from zoo.recipe.schema import Recipe
from zoo.recipe.trainer import TrainerConfig

ENCODING = "model.encoding"
MAX_STEPS = "trainer.max_steps"
ACCUMULATE = "trainer.accumulate_grad_batches"

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


def may_change_on_resume(key: str) -> bool:
    """Whether a resumed run may have another value of a key. `trainer.max_steps` depends on the run."""
    return _effect(key) in ("nothing", "saved", "rounding")


def is_recorded_on_resume(key: str) -> bool:
    """Whether the card of a resumed run records a change of a key, with the step at which it came."""
    return _effect(key) in ("saved", "rounding", "length")


def may_differ_between_runs(key: str) -> bool:
    """Whether comparable runs may have other values of a key."""
    return _effect(key) not in (None, "length")


def changes_rounding(key: str) -> bool:
    """Whether another value of a key changes the weights by rounding and random draws alone."""
    return _effect(key) == "rounding"


def decides_speed(key: str) -> bool:
    """Whether times measured with other values of a key cannot be compared."""
    found = differs(key)
    return found is not None and (found.speed or found.effect == "rounding")


def may_change_after_training() -> tuple[str, ...]:
    """The keys that may be set when a trained model is evaluated, the encoding's own apart."""
    return _keys(lambda one: one.after_training)


def differs(key: str) -> Differs | None:
    """The metadata of a key's field, or of the nearest above it; None where it decides the weights."""
    declared = _declared()
    while key:
        if key in declared:
            return declared[key]
        key = key.rpartition(".")[0]
    return None


def _effect(key: str) -> str | None:
    found = differs(key)
    return found and found.effect


def _keys(of: Callable[[Differs], bool]) -> tuple[str, ...]:
    return tuple(key for key, one in _declared().items() if of(one))


def _declared() -> dict[str, Differs]:
    """What the fields of the schema say, and the options of all that is registered, by dotted key."""
    kinds = (registry.datasets, registry.tasks, registry.optimizers, registry.schedules)
    return _declared_by(tuple(one for kind in kinds for one in kind.all().values()))


@functools.lru_cache(maxsize=8)
def _declared_by(registered: tuple[registry.Description, ...]) -> dict[str, Differs]:
    found = {f"trainer.{flag}": one for flag, one in TrainerConfig.LIGHTNING_FLAGS.items()}
    for name, field in Recipe.model_fields.items():
        fields = {name: field}
        for section in typing.get_args(field.annotation) or (field.annotation,):
            if isinstance(section, type) and issubclass(section, Section):
                fields |= {f"{name}.{key}": inner for key, inner in section.model_fields.items()}
        found |= {key: one for key, own in fields.items() for one in own.metadata if isinstance(one, Differs)}
    sections = {"dataset": "data", "task": "task", "optimizer": "optimizer", "schedule": "optimizer"}
    options = [(sections[about.kind], option) for about in registered for option in about.options]
    for section, option in options:
        for one in getattr(option.annotation, "__metadata__", ()):
            if isinstance(one, Differs):
                found[f"{section}.{option.name}"] = one
    return found


def limits_epochs(trainer: dict[str, Any]) -> bool:
    """Whether the section `trainer` of a recipe limits epochs to a number of batches."""
    limit = trainer.get("limit_train_batches")
    return limit is not None and not (isinstance(limit, float) and limit == 1)


def changes_on_resume(stored: dict[str, Any], recipe: Recipe) -> list[Change]:
    """Every key at which a run's stored recipe differs from the one that it is resumed with."""
    return diff(stored, recipe.as_dict())


def refused_on_resume(stored: dict[str, Any], recipe: Recipe) -> list[Change]:
    """Those of `changes_on_resume` that would make another run, `trainer.max_steps` apart."""
    changes = changes_on_resume(stored, recipe)
    # An epoch that is limited to so many batches has other tokens where the batches have another size.
    fixed = (ACCUMULATE,) if limits_epochs(recipe.trainer.flags()) else ()
    return [
        row for row in changes if row[0] in fixed or not (row[0] == MAX_STEPS or may_change_on_resume(row[0]))
    ]


def recorded_on_resume(stored: dict[str, Any], recipe: Recipe) -> list[Change]:
    """Those of `changes_on_resume` that the card of the resumed run records."""
    return [row for row in changes_on_resume(stored, recipe) if is_recorded_on_resume(row[0])]
