"""The matrix of a sweep: every encoding with every seed, checked before anything starts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.errors import InputError, Problem, shorten
from zoo.recipe import Recipe, read_recipe, to_yaml_line
from zoo.recipe.encoding import encoding_label
from zoo.recipe.yaml_file import read_value
from zoo.sweep.runs import Run
from zoo.tasks import build_encoding

OWNED = {
    "seed": "the sweep sets it: use --seeds",
    "name": "each run of a sweep has a name of its own",
    "model.encoding": "the sweep sets it: give options with the encoding, as in --encodings "
    "'rope,{name: rope, partial: 0.25}'",
}
MAX_OPTION, MAX_SLUG = 24, 80  # characters
DIGEST = 6  # hexadecimal digits


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


def matrix(
    file: Path, encodings: Sequence[Any], seeds: Sequence[int], sets: Sequence[str], out: Path
) -> tuple[str, list[Run]]:
    """Every run, seed by seed, so that a sweep that is stopped has compared all encodings at some seeds.

    Args:
        file: the recipe; whether it names an encoding itself does not matter.
        encodings: as a recipe has them: names, mappings or lists.
        sets: `key=value` texts laid over the recipe, for all runs.
        out: the folder in which the runs' folders lie.

    Returns: the name of the sweep, which is that of the recipe, and its runs.

    Raises:
        InputError: every problem of every run; one that several have is reported once.
    """
    owned = [
        Problem(why, where=f"--set {text}")
        for text in sets
        for key, why in OWNED.items()
        if f"{text.partition('=')[0].strip()}.".startswith(f"{key}.")
    ]
    broken = [Problem("must be on one line", where=f"--set {t!r}") for t in sets if "\n" in t]
    if owned or broken:
        raise InputError([*owned, *broken])
    recipes: dict[tuple[str, int], Recipe] = {}
    found: dict[Problem, list[tuple[str, int]]] = {}
    items = list(dict.fromkeys(map(to_yaml_line, encodings)))
    for item in items:
        for seed in seeds:
            try:
                recipes[item, seed] = read_recipe(file, _sets(sets, item, seed, "run"))
            except InputError as error:
                for problem in error.problems:
                    found.setdefault(problem, []).append((item, seed))
        try:
            if (item, seeds[0]) in recipes:
                build_encoding(recipes[item, seeds[0]])
        except InputError as error:
            for problem in error.problems:
                found.setdefault(problem, []).extend((item, seed) for seed in seeds)
    if found:
        raise InputError(dict.fromkeys(_located_in_sweep(found, items, seeds)))
    specs = {item: recipes[item, seeds[0]].as_dict()["model"]["encoding"] for item in items}
    # `rope` and `{name: rope}` are one.
    items = list({to_yaml_line(spec): item for item, spec in reversed(specs.items())}.values())[::-1]
    recipe_name, names = _recipe_name(file, sets), slugs([specs[item] for item in items])
    runs = []
    for seed in dict.fromkeys(seeds):
        for item, slug in zip(items, names, strict=True):
            name = f"{slug}_{recipe_name}_s{seed}"
            recipe = recipes[item, seed].model_copy(update={"name": name})
            label = encoding_label(recipe.model.encoding)
            runs.append(Run(name, label, seed, recipe, file, _sets(sets, item, seed, name), out / name))
    return recipe_name, runs


def slugs(specs: Sequence[Any]) -> list[str]:
    """Names of resolved encodings in file names; all differ, even if case is ignored.

    A name has the options that are not at their default. If several would have one name, or it is too long,
    a digest of the encoding is appended.
    """
    plain = [re.sub(r"[^A-Za-z0-9._-]+", "-", _words(spec)).strip("-._") for spec in specs]
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
        if registry.holds_wrapped(option.annotation):
            words += [] if value is None else [_words(value)]
        elif option.name in spec and json.dumps(value) != json.dumps(option.default, default=str):
            text = value if isinstance(value, str) else json.dumps(value)
            words.append(f"{option.name}-{text if len(text) <= MAX_OPTION else _digest(value)}")
    return "-".join(words)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:DIGEST]


def _sets(sets: Sequence[str], item: str, seed: int, name: str) -> tuple[str, ...]:
    return (*sets, f"model.encoding={item}", f"seed={seed}", f"name={name}")


def _recipe_name(file: Path, sets: Sequence[str]) -> str:
    """The recipe's file without its ending, and without the encoding that `alibi_copy.yaml` begins with."""
    stem = file.stem
    try:
        spec = read_recipe(file, [*sets, "name=run"]).as_dict()["model"]["encoding"]
        own = spec["name"] if isinstance(spec, dict) else ""
    except InputError:
        own = ""  # a recipe without an encoding of its own
    stem = stem.removeprefix(f"{own}_") or stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem) or "run"


def _located_in_sweep(
    found: dict[Problem, list[tuple[str, int]]], items: Sequence[str], seeds: Sequence[int]
) -> Iterable[Problem]:
    """Each problem with the encodings and seeds that have it, and where it is on the sweep's command line."""
    for problem, cells in found.items():
        where = problem.where or ""
        of = list(dict.fromkeys(item for item, _ in cells))
        at = list(dict.fromkeys(seed for _, seed in cells))
        if where.startswith("--set model.encoding="):
            location = f"--encodings {of[0]}" if len(of) == 1 else "--encodings"
        elif where.startswith("--set seed="):
            location = f"--seeds {at[0]}"
        elif len(of) == len(items):
            location = where
        else:
            location = f"{where}: with {', '.join(of)}".lstrip(": ")
        if len(at) < len(set(seeds)) and not location.startswith("--seeds"):
            location = f"{location}: with seed {', '.join(map(str, at))}".lstrip(": ")
        yield replace(problem, where=location or None)
