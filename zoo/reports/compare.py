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
from zoo.figures.curves import pictures
from zoo.figures.style import check_panels
from zoo.files import atomic_write
from zoo.recipe.diff import ENCODING, flatten, is_among
from zoo.reports.report import NOT_COMPARABLE, OUT, Report, build
from zoo.reports.tables import report_page
from zoo.reports.text import console, latex, markdown, terminal_width

TABLE, DATA, PAGE, LATEX = "compare.md", "compare.csv", "index.html", "compare.tex"
PICTURES = (".png", ".svg", ".pdf")
FILES = (TABLE, DATA, *(f"compare{ending}" for ending in PICTURES), PAGE, LATEX)


def compare(
    paths: Sequence[Path],
    out: Path = OUT,
    protocols: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    force: bool = False,
    reference: str | None = None,
    models: bool = False,
    panels: Sequence[str] | None = None,
    with_latex: bool = False,
    floor: float | None = None,
) -> Report:
    """Compare evaluated runs (`zoo.reports.report.build`): print the tables, and write all files to `out`,
    which may hold an earlier comparison.

    Args:
        panels: the protocols in the picture; by default all.
        with_latex: write the tables for LaTeX, too.

    Raises:
        InputError: as `build`; or a folder that holds other files.
    """
    validate_out(out)
    report = build(paths, protocols, lengths, force, out, reference, models, floor=floor)
    if panels:
        check_panels(panels, report.summary["protocol"])
        report = replace(report, command=f"{report.command} --panels {','.join(panels)}")
    if with_latex:
        report = replace(report, command=f"{report.command} --latex")
    print(console(report, terminal_width()), flush=True)
    written = write_report(report, out, panels, with_latex)
    print(f"\ntables, plots and page: {', '.join(map(str, written))}", flush=True)
    return report


def validate_out(folder: Path) -> None:
    """Raise InputError for a folder of something else, whose index.html would be replaced."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / DATA).exists():
        raise InputError(f"{folder} holds other files; choose another folder with --out")


def write_report(
    report: Report, folder: Path, panels: Sequence[str] | None = None, with_latex: bool = False
) -> list[Path]:
    """Write all files of a comparison; without a picture where nothing is finite.

    Args:
        panels: the protocols in the picture; by default all.

    Raises:
        InputError: the folder holds other files.
    """
    validate_out(folder)
    title = f"{NOT_COMPARABLE} (--force): {report.title}" if report.differences else report.title
    table = report.summary
    table = table[table["protocol"].isin(panels)] if panels else table
    drawn = {f"compare{ending}": content for ending, content in pictures(table, title, PICTURES).items()}
    # compare.csv comes first: it marks the folder as a comparison.
    files = {DATA: report.table.to_csv(index=False), TABLE: markdown(report, [*drawn][:1])}
    files |= drawn | {PAGE: report_page(report)} | ({LATEX: latex(report)} if with_latex else {})
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        atomic_write(folder / name, content)
    for name in set(FILES) - set(files):
        (folder / name).unlink(missing_ok=True)
    return [folder / name for name in files]


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
    parts += [_table(runs, keys)] if keys else []
    parts += [f"  {one}" for one in found if one not in keys]
    refused = {one.key for one in keys}
    if allowed := [one for one in _all_differences(runs) if one.key not in refused]:
        parts += ["", "what comparable runs may differ in:", _table(runs, allowed)]
    notes = caveats.of_runs(runs) + [f"{run.path}: not evaluated" for run in runs if not run.measurements]
    parts += ["", "caveats:", *(f"  {one}" for one in notes)] if notes else []
    return "\n".join(parts)


def _all_differences(runs: Sequence[RunInfo]) -> list[KeyDifference]:
    """The differing keys of the recipes, and of the cards those of parameters and plugins."""
    named = []
    # Options of two different encodings are not differences, and neither is a plugin that one of them has.
    same = len({run.label for run in runs}) == 1
    shared = set.intersection(*(set(facts(run)) for run in runs))
    for run in runs:
        own = {("recipe", key): value for key, value in flatten(run.recipe).items()}
        if not same:
            own = {key: value for key, value in own.items() if not is_among(key[1], (ENCODING,))}
            own["recipe", ENCODING] = run.label
        own |= {("card", key): one for key, one in flatten(run.card["parameters"], "parameters").items()}
        own |= {
            key: one for key, one in facts(run).items()
            if key[0] == "card" and key in shared and is_of_the_encoding(key)
        }  # fmt: skip
        named.append((run.path, own))
    return differing(named)


def _table(runs: Sequence[RunInfo], found: Sequence[KeyDifference]) -> str:
    """A row for each key, a column for each run."""
    rows = []
    for one in found:
        value = {path: value_as_text(value) for value, paths in one.values for path in paths}
        rows.append((" ".join(one.key), *(value[run.path] for run in runs)))
    return table(("key", *(run.path for run in runs)), rows)
