"""A run of a comparison: recipe, card, measurements and training speed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from zoo.errors import InputError, Problem
from zoo.evaluation.measurement import Measurement
from zoo.recipe import recipe_of_run

UNKNOWN = "not known"


@dataclass(frozen=True)
class RunInfo:
    """A run.

    Attributes:
        path: the folder as the user gave it.
        recipe: resolved; keys that are newer than the run have their defaults.
        measurements: of its last checkpoint.
        left_out: the other measurements, as text.
        speed: median of the logged training tokens per second; None where none were logged.
        tuned: the grid from which a sweep chose this run's values by validation, these values, and the losses
            of all by seed; empty without a grid.
        validation: the validation loss in nats, by step.
        origin: what a study has stored of the training, such as seconds and machine.
    """

    path: str
    recipe: dict[str, Any]
    card: dict[str, Any]
    measurements: tuple[Measurement, ...] = ()
    left_out: tuple[str, ...] = ()
    speed: float | None = None
    tuned: dict[str, Any] = field(default_factory=dict)
    validation: dict[int, float] = field(default_factory=dict)
    origin: dict[str, Any] = field(default_factory=dict)

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The values of each key of the grid."""
        return self.tuned.get("grid", {})

    @property
    def seed(self) -> int:
        return self.recipe["seed"]

    @property
    def label(self) -> str:
        """Its encoding as text."""
        return str(self.card.get("encoding") or self.recipe["model"]["encoding"])

    @property
    def data(self) -> str:
        """The data in its recipe: the name of the dataset, and of a user's text the file or folder."""
        data = self.recipe["data"]
        return f"{data['name']} {PurePath(data['root']).name}" if data["name"] == "text" else data["name"]

    @property
    def trained_on(self) -> str:
        """The data of its training; those in the recipe of an imported model are for its evaluation."""
        return UNKNOWN if self.card.get("imported") else self.data

    @property
    def scored_on(self) -> str:
        """The data of its measurements."""
        own = {PurePath(one.parameters.get("data", self.data)).name for one in self.measurements}
        return ", ".join(sorted(own))


def validated(stored: dict[str, Any], where: str) -> dict[str, Any]:
    """A stored recipe with the defaults of newer keys; sections of a plugin stay as they were stored, since
    no plugin is imported.

    Raises:
        InputError: it is not a recipe.
    """
    try:
        recipe = recipe_of_run({key: value for key, value in stored.items() if key != "evaluate"}).as_dict()
    except InputError as error:
        raise InputError([Problem(p.message, key=p.key, where=where) for p in error.problems]) from error
    return recipe | {key: stored[key] for key in ("evaluate",) if key in stored}
