"""What differs between two runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zoo.console import table
from zoo.errors import InputError
from zoo.recipe.diff import flatten, is_among
from zoo.reports.caveats import caveats_of_runs
from zoo.reports.commands import ENCODING
from zoo.reports.comparable import KeyDifference, differences, differing, facts, is_of_the_encoding
from zoo.reports.compared_run import Run, read_runs
from zoo.reports.values import value_as_text


def diff(first: Path, second: Path) -> str:
    """All that differs between two runs, as text: what forbids to compare them, and what does not.

    Raises:
        InputError: a run that cannot be read.
    """
    runs = read_runs([first, second], evaluated=False)
    if len(runs) < 2:
        raise InputError(f"{first} and {second} are the same run")
    found = differences(runs)
    keys = [one for one in found if isinstance(one, KeyDifference)]
    others = [one for one in found if not isinstance(one, KeyDifference)]
    named = " and ".join(run.path for run in runs)
    parts = [f"{named}: {'not comparable, because of' if found else 'comparable'}"]
    if keys:
        parts.append(_as_table(runs, keys))
    parts += [f"  {one}" for one in others]
    allowed = [one for one in _all(runs) if one.key not in {key.key for key in keys}]
    if allowed:
        parts += ["", "what comparable runs may differ in:", _as_table(runs, allowed)]
    said = [*caveats_of_runs(runs), *(f"{run.path}: not evaluated" for run in runs if not run.measurements)]
    if said:
        parts += ["", "caveats:", *(f"  {one}" for one in said)]
    return "\n".join(parts)


def _all(runs: Sequence[Run]) -> list[KeyDifference]:
    """Every key of the recipes, and those of the cards that say what was trained and by which code."""
    named = []
    # Of two encodings the options are no differences: each has its own.
    same = runs[0].label == runs[1].label
    shared = facts(runs[0]).keys() & facts(runs[1]).keys()
    code = {key for key in shared if key[0] == "card" and is_of_the_encoding(key)}
    for run in runs:
        recipe = {("recipe", key): value for key, value in flatten(run.recipe).items()}
        if not same:
            recipe = {key: value for key, value in recipe.items() if not is_among(key[1], (ENCODING,))}
            recipe["recipe", ENCODING] = run.label
        parameters = flatten(run.card["parameters"], "parameters")
        card = {("card", key): value for key, value in parameters.items()}
        # An encoding of a plugin that was edited is another one under the same name.
        card |= {key: own for key, own in facts(run).items() if key in code}
        named.append((run.path, recipe | card))
    return differing(named)


def _as_table(runs: Sequence[Run], found: Sequence[KeyDifference]) -> str:
    rows = []
    for one in found:
        value = {path: value_as_text(value) for value, paths in one.values for path in paths}
        rows.append((f"  {one.key[0]}", one.key[1], *(value[run.path] for run in runs)))
    return table(("  in", "key", *(run.path for run in runs)), rows)
