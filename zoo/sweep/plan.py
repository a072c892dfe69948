"""The plan of a sweep: every encoding with every seed, each a run, checked before anything starts."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.errors import InputError, Problem, collect, shorten
from zoo.evaluation.measurement import Measurement
from zoo.evaluation.store import read_measurements
from zoo.recipe import Recipe, read_recipe, to_yaml_line
from zoo.recipe.encoding import encoding_label
from zoo.recipe.tree import read_value
from zoo.runs.card import read_card
from zoo.runs.folder import (
    CARD,
    LAST,
    RECIPE,
    max_steps_problem,
    stored_recipe,
    validate_free,
    validate_same_recipe,
)
from zoo.sweep.grid import Grid, Point, points, validate_selectable
from zoo.tasks import build_encoding

OWNED = {
    "seed": "the sweep sets it: use --seeds",
    "name": "each run of a sweep has a name of its own",
    "model.encoding": "the sweep sets it: give options with the encoding, as in --encodings "
    "'rope,{name: rope, partial: 0.25}'",
}
MAX_OPTION, MAX_SLUG = 24, 80  # characters
UNSAFE = r"[^A-Za-z0-9._-]+"
"""Characters that are replaced in a file name."""


@dataclass(frozen=True)
class PlannedRun:
    """One cell of the matrix: a recipe and the folder of its run."""

    name: str
    encoding: str
    """Its name in file names, other than `label` of each encoding alone."""
    label: str
    point: Point
    seed: int
    recipe: Recipe
    file: Path
    sets: tuple[str, ...]
    folder: Path

    @property
    def log(self) -> Path:
        """The output of the run's process."""
        return self.folder.parent / "logs" / f"{self.name}.log"

    def command(self, python: str = "python") -> list[str]:
        """The command that starts the run, resumes it, or only evaluates it if it is trained."""
        sets = [part for text in self.sets for part in ("--set", text)]
        command = [python, "-m", "zoo", "fit", "--recipe", str(self.file), *sets]
        return [*command, "--out", str(self.folder), "--resume", "auto"]

    def command_line(self) -> str:
        """The command as one line for a shell."""
        return shlex.join(self.command())

    def is_finished(self) -> bool:
        """Whether the last checkpoint has all steps, and was evaluated by every protocol and at every length.

        Raises:
            InputError: results that cannot be read.
        """
        if not (self.folder / LAST).is_file():
            return False
        wanted, steps = self.recipe.evaluate, self.recipe.trainer.max_steps
        measured: dict[str, list[Measurement]] = {name: [] for name in wanted.protocols}
        for one in read_measurements(self.folder):
            if Path(one.checkpoint) == LAST and not one.changed and one.step == steps:
                measured.setdefault(one.protocol, []).append(one)
        return all(covers(measured[name], wanted.lengths) for name in wanted.protocols)

    def check_folder(self) -> None:
        """Raises InputError for a folder where `command` can neither begin nor resume the run."""
        if not (self.folder / RECIPE).is_file():
            validate_free(self.folder)
            return
        problems: list[Problem | None] = []
        stored = stored_recipe(self.folder)
        with collect(problems):
            validate_same_recipe(stored, self.recipe, self.folder / RECIPE)
        steps = read_card(self.folder)["steps"] if (self.folder / CARD).exists() else 0
        problems.append(max_steps_problem(self.folder, stored, self.recipe, steps))
        if any(problems):
            advice = "it holds a run of another recipe: move it away, or choose another --out"
            raise InputError([*filter(None, problems), Problem(advice, where=str(self.folder))])


def covers(measured: Sequence[Measurement], lengths: Sequence[int]) -> bool:
    """Whether the measurements by one protocol have a row, or a note, for each of some lengths."""
    windows = {one.parameters.get("window") for one in measured}
    # One pass over the longest window answers for all lengths: its rows are of context lengths.
    return {row.length for one in measured for row in one.rows} >= {*lengths} or max(lengths) in windows


def read_encodings(text: str) -> list[Any]:
    """The encodings of `alibi,{name: rope, partial: 0.25},[rope, fox]`: the items of a YAML list.

    Raises:
        InputError: no such list, or an empty one.
    """
    where = f"--encodings {shorten(text)}"
    items = read_value(f"[{text}]", where)
    if not items:
        raise InputError(Problem("no encoding is named, as in alibi,rope", where=where))
    return items


def plan(
    file: Path,
    encodings: Sequence[Any],
    seeds: Sequence[int],
    sets: Sequence[str],
    out: Path,
    grid: Grid | None = None,
) -> tuple[str, list[PlannedRun]]:
    """Every run, seed by seed, so that a sweep that is stopped has compared all encodings at some seeds.

    Args:
        file: the recipe; whether it names an encoding itself does not matter.
        encodings: as a recipe has them: names, mappings or lists.
        sets: `key=value` texts laid over the recipe, for all runs.
        out: the folder in which the runs' folders lie.
        grid: values of keys, each combination of which every encoding is trained with.

    Returns: the name of the sweep, which is that of the recipe, and its runs.

    Raises:
        InputError: every problem of every run; one that several have is reported once.
    """
    owned = [
        Problem(why, where=f"{option} {text}")
        for option, texts in {"--set": sets, "--grid": grid or ()}.items()
        for text in texts
        for key, why in OWNED.items()
        if f"{text.partition('=')[0].strip()}.".startswith(f"{key}.")
    ]
    if owned:
        raise InputError(owned)
    recipes: dict[tuple[str, Point, int], Recipe] = {}
    found: dict[Problem, list[str]] = {}
    items = list(dict.fromkeys(map(to_yaml_line, encodings)))
    tried = points(grid or {})
    for item in items:
        for point, seed in itertools.product(tried, seeds):
            try:
                recipe = read_recipe(file, _sets((*sets, *point), item, seed, "run"))
                if grid:
                    validate_selectable(recipe)
                    # The validation split chooses from the grid, and reports nothing.
                    evaluate = recipe.evaluate.model_copy(update={"split": recipe.evaluate.split or "test"})
                    recipe = recipe.model_copy(update={"evaluate": evaluate})
                recipes[item, point, seed] = recipe
                if seed == seeds[0]:
                    build_encoding(recipe)
            except InputError as error:
                for problem in error.problems:
                    found.setdefault(problem, []).append(item)
    if found:
        raise InputError(dict.fromkeys(_located_in_sweep(*one, items) for one in found.items()))
    specs = {item: recipes[item, tried[0], seeds[0]].as_dict()["model"]["encoding"] for item in items}
    # `rope` and `{name: rope}` are one.
    items = list({to_yaml_line(spec): item for item, spec in reversed(specs.items())}.values())[::-1]
    recipe_name, names = _recipe_name(file), slugs([specs[item] for item in items])
    runs = []
    for seed, point in itertools.product(dict.fromkeys(seeds), tried):
        for item, slug in zip(items, names, strict=True):
            name = "_".join((slug, recipe_name, *map(_point_slug, point), f"s{seed}"))
            recipe = recipes[item, point, seed].model_copy(update={"name": name})
            split = (f"evaluate.split={recipe.evaluate.split}",) if grid else ()
            label = encoding_label(recipe.model.encoding)
            own = _sets((*split, *sets, *point), item, seed, name)
            runs.append(PlannedRun(name, slug, label, point, seed, recipe, file, own, out / name))
    return recipe_name, runs


def slugs(specs: Sequence[Any]) -> list[str]:
    """Names of resolved encodings in file names; all differ, even if case is ignored.

    A name has the options that are not at their default. If several would have one name, or it is too long,
    a digest of the encoding is appended.
    """
    plain = [re.sub(UNSAFE, "-", _words(spec)).strip("-._") for spec in specs]
    folded = [slug.casefold() for slug in plain]
    return [
        slug
        if slug and len(slug) <= MAX_SLUG and folded.count(slug.casefold()) == 1
        else f"{slug[:MAX_SLUG]}-{_digest(spec)}".lstrip("-")
        for slug, spec in zip(plain, specs, strict=True)
    ]


def _words(spec: Any) -> str:
    if isinstance(spec, list | tuple):
        return "-".join(map(_words, spec))
    words = [spec["name"]]
    for option in registry.encodings.describe(spec["name"]).options:
        value = spec.get(option.name)
        if option.wraps:
            words += [] if value is None else [_words(value)]
        elif option.name in spec and json.dumps(value) != json.dumps(option.default, default=str):
            text = value if isinstance(value, str) else json.dumps(value)
            words.append(f"{option.name}-{text if len(text) <= MAX_OPTION else _digest(value)}")
    return "-".join(words)


def _point_slug(setting: str) -> str:
    """`lr-0.001` of `optimizer.lr=0.001`."""
    key, _, value = setting.partition("=")
    safe = len(value) <= MAX_OPTION and not re.search(UNSAFE, value)
    return f"{key.rpartition('.')[2]}-{value if safe else _digest(value)}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]


def _sets(sets: Sequence[str], item: str, seed: int, name: str) -> tuple[str, ...]:
    return (*sets, f"model.encoding={item}", f"seed={seed}", f"name={name}")


def _recipe_name(file: Path) -> str:
    """The recipe's file without its ending, and without the encoding that `alibi_copy.yaml` begins with."""
    named = [name for name in registry.encodings.names() if file.stem.startswith(f"{name}_")]
    stem = file.stem.removeprefix(f"{max(named, key=len)}_") if named else file.stem
    return re.sub(UNSAFE, "-", stem) or "run"


def _located_in_sweep(problem: Problem, of: Sequence[str], items: Sequence[str]) -> Problem:
    """A problem that some of the encodings have, and where it is on the sweep's command line."""
    where, of = problem.where or "", list(dict.fromkeys(of))
    if where.startswith("--set model.encoding="):
        where = f"--encodings {of[0]}" if len(of) == 1 else "--encodings"
    elif where.startswith("--set seed="):
        where = where.replace("--set seed=", "--seeds ")
    elif len(of) < len(items):
        where = f"{where}: with {', '.join(of)}".removeprefix(": ")
    return replace(problem, where=where or None)
