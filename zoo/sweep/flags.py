"""The study that flags make: a recipe with `--encodings`, `--seeds`, `--set` and `--grid`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from zoo import registry
from zoo.errors import InputError, Problem, shorten
from zoo.recipe import Recipe, to_yaml_line
from zoo.recipe.tree import KeyPath, Tree, read_value
from zoo.sweep.folder import KeptRun
from zoo.sweep.study import Entry, Study

MAX_SLUG = 80  # characters
UNSAFE = r"[^A-Za-z0-9._-]+"
"""Characters that are replaced in a file name."""


class FlagStudy(Study):
    """A study whose runs keep their folders; its recipes change in nothing but the flags."""

    fixed: ClassVar[dict[str, Any]] = {}
    entry: ClassVar[type[Entry]] = KeptRun

    def _names(self, wanted: list[str]) -> list[str]:
        """In the order of the command line."""
        return wanted

    def run_name(self, encoding: str, seed: int, setting: Sequence[str]) -> str:
        points = (slug(re.sub(r"^(.*\.)?([^.=]+)=", r"\2-", one)) for one in setting)
        return "_".join([encoding, self.name, *points, f"s{seed}"])

    def validate_recipe(self, recipe: Recipe) -> None:
        super().validate_recipe(recipe)
        if self.grid and "csv" not in recipe.logging:
            raise InputError(
                Problem("--grid reads the validation loss in metrics.csv: add csv", key="logging")
            )
        if self.grid and recipe.trainer.limit_val_batches == 0:
            message = "--grid chooses by the validation loss: take another number, or null for all"
            raise InputError(Problem(message, key="trainer.limit_val_batches"))


def read_flags(
    recipe: Path, encodings: str, seeds: Sequence[int], sets: Sequence[str], grid: Sequence[str]
) -> FlagStudy:
    """The study of some flags.

    Raises:
        InputError: every problem of every run; one that several have is reported once.
    """
    specs = named(given := read_encodings(encodings))
    if wrong := [to_yaml_line(one) for one in given if not (one and isinstance(one, str | list | dict))]:
        message = f"no encoding: {', '.join(wrong)}; `zoo list encodings` has all"
        raise InputError(Problem(message, where=f"--encodings {shorten(encodings)}"))
    study = FlagStudy(
        name=_name(recipe), base=str(recipe), encodings=[*specs], seeds=list(dict.fromkeys(seeds)),
        set=list(sets), grid=read_grid(grid), options={k: v for k, v in specs.items() if k != v},
    )  # fmt: skip
    places: dict[KeyPath, str] = {("grid", key): f"--grid {key}" for key in study.grid}
    places |= {("set", n): f"--set {text}" for n, text in enumerate(sets)}
    places |= {("seeds", n): f"--seeds {seed}" for n, seed in enumerate(study.seeds)}
    for n, (name, spec) in enumerate(specs.items()):
        places["encodings", n] = places["options", name] = f"--encodings {to_yaml_line(spec)}"
    study.validate(Tree({}, places))
    # The validation split chooses from the grid, and reports nothing.
    if grid and study.entries(Path())[0].recipe.evaluate.split is None:
        study = replace(study, set=["evaluate.split=test", *sets])
    return study


def read_encodings(text: str) -> list[Any]:
    """The encodings of `alibi,{name: rope, partial: 0.25},[rope, fox]`: the items of a YAML list.

    Raises:
        InputError: no such list, or an empty one.
    """
    where = f"--encodings {shorten(text)}"
    items = read_value(f"[{text}]", where)
    if not items or None in items:
        raise InputError(Problem("encodings are separated by commas, as in alibi,rope", where=where))
    return items


def read_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The grid of texts such as `optimizer.lr=1e-3,3e-3`. Raises InputError for one of another form."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, _, values = text.partition("=")
        grid[key.strip()] = read_value(f"[{values}]", f"--grid {text}")
        if not key.strip() or len(grid[key.strip()]) < 2:
            message = "not a key with several values, as in optimizer.lr=1e-3,3e-3"
            raise InputError(Problem(message, where=f"--grid {text}"))
    return grid


def named(specs: Sequence[Any]) -> dict[str, Any]:
    """Encodings by their names in file names, where `rope` and `{name: rope}` are one."""
    found: dict[str, Any] = {}
    for spec in specs:
        spec = spec["name"] if isinstance(spec, dict) and [*spec] == ["name"] else spec
        name = spec if spec in registry.encodings.names() else slug(spec)
        found[name if found.get(name, spec) == spec else f"{name}-{_digest(spec)}"] = spec
    return found


def slug(value: Any) -> str:
    """A value as a part of a file name, such as `rope-partial-0.25`; a digest ends one that is too long."""
    text = value if isinstance(value, str) else to_yaml_line(value).replace("name: ", "")
    safe = re.sub(UNSAFE, "-", text).strip("-._")
    return safe if safe and len(safe) <= MAX_SLUG else f"{safe[:MAX_SLUG]}-{_digest(value)}".lstrip("-")


def _digest(value: Any) -> str:
    return hashlib.sha256(to_yaml_line(value).encode()).hexdigest()[:6]


def _name(recipe: Path) -> str:
    """The recipe's file without its ending, and without the encoding that `alibi_copy.yaml` begins with."""
    names = [name for name in registry.encodings.names() if recipe.stem.startswith(f"{name}_")]
    return re.sub(UNSAFE, "-", recipe.stem.removeprefix(f"{max(names, key=len, default='')}_")) or "run"
