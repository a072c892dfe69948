"""Generated tasks whose examples are a prompt and its answer.

A task is a file of this package, named as in a recipe, with a class of that name; its options are those of
its config in `zoo.recipe.algorithmic`. Nothing else has to know it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.data.algorithmic.algorithmic import Algorithmic


def task_of(name: str, options: dict[str, Any]) -> Algorithmic:
    """A task by the name of its dataset, for example `flip_flop`. Raises InputError for options that do not
    go together."""
    module = import_module(f"zoo.data.algorithmic.{name}")
    return getattr(module, "".join(part.capitalize() for part in name.split("_")))(**options)
