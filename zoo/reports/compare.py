"""`zoo compare`: tables, plots and a page of several runs; and the differences between two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from zoo.comparison import caveats
from zoo.comparison.comparable import (
    KeyDifference,
    differences,
    differing,
    facts,
    is_of_the_encoding,
    value_as_text,
)
from zoo.comparison.run_info import RunInfo
from zoo.comparison.runs import read_runs
from zoo.console import table
from zoo.errors import InputError
from zoo.figures.style import check_panels
from zoo.recipe.diff import ENCODING, flatten, is_among
from zoo.reports.report import OUT, Report, build
from zoo.reports.text import console, terminal
from zoo.reports.write import validate_out, write_report


def compare(
    paths: Sequence[Path],
    out: Path = OUT,
    protocols: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    force: bool = False,
    reference: str | None = None,
    models: bool = False,
    panels: Sequence[str] | None = None,
) -> Report:
    """Compare evaluated runs (`zoo.reports.report.build`): print the tables, and write all files to `out`,
    which may hold an earlier comparison.

    Args:
        panels: the protocols in the picture; by default all.

    Raises:
        InputError: as `build`; or a folder that holds other files.
    """
    validate_out(out)
    report = build(paths, protocols, lengths, force, out, reference, models)
    if panels:
        check_panels(panels, report.summary["protocol"])
        report = replace(report, command=f"{report.command} --panels {','.join(panels)}")
    print(console(report, *terminal()), flush=True)
    written = write_report(report, out, panels)
    print(f"\ntables, plots and page: {', '.join(map(str, written))}")
    print(f"\n{report.verdict}", flush=True)
    return report


def diff(first: Path, second: Path) -> str:
    """All differences between two runs, as text: first the ones that make them not comparable.

    Raises:
        InputError: a run that cannot be read.
    """
    runs = read_runs([first, second], evaluated=False)
    if len(runs) < 2:
        raise InputError(f"{first} and {second} are the same run")
    found = differences(runs)
    keys = [one for one in found if isinstance(one, KeyDifference)]
    named = " and ".join(run.path for run in runs)
    parts = [f"{named}: {'not comparable, because of' if found else 'comparable'}"]
    if keys:
        parts.append(table(*differences_table(runs, keys)))
    parts += [f"  {one}" for one in found if one not in keys]
    allowed = [one for one in all_differences(runs) if one.key not in {key.key for key in keys}]
    if allowed:
        parts += ["", "what comparable runs may differ in:", table(*differences_table(runs, allowed))]
    notes = [one.line for one in caveats.of_runs(runs)]
    notes += [f"{run.path}: not evaluated" for run in runs if not run.measurements]
    if notes:
        parts += ["", "caveats:", *(f"  {one}" for one in notes)]
    return "\n".join(parts)


def all_differences(runs: Sequence[RunInfo]) -> list[KeyDifference]:
    """The differing keys of the recipes, and of the cards those of parameters and plugins."""
    named = []
    # Options of two different encodings are not differences.
    same = len({run.label for run in runs}) == 1
    shared = set.intersection(*(set(facts(run)) for run in runs))
    code = {key for key in shared if key[0] == "card" and is_of_the_encoding(key)}
    for run in runs:
        recipe = {("recipe", key): value for key, value in flatten(run.recipe).items()}
        if not same:
            recipe = {key: value for key, value in recipe.items() if not is_among(key[1], (ENCODING,))}
            recipe["recipe", ENCODING] = run.label
        parameters = flatten(run.card["parameters"], "parameters")
        card = {("card", key): value for key, value in parameters.items()}
        named.append((run.path, recipe | card | {key: own for key, own in facts(run).items() if key in code}))
    return differing(named)


def differences_table(
    runs: Sequence[RunInfo], found: Sequence[KeyDifference]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Header and rows: a row for each key, a column for each run."""
    rows = []
    for one in found:
        value = {path: value_as_text(value) for value, paths in one.values for path in paths}
        rows.append((" ".join(one.key), *(value[run.path] for run in runs)))
    return ("key", *(run.path for run in runs)), rows
