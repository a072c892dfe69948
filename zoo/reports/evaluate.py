"""`zoo evaluate`: scores of trained models at several lengths, with tables, plots and a page.

evaluation/
  measurements/               a file for each measurement, with the scores of each document or example
  lengths.json  lengths.csv   all their rows, flat
  lengths.md                  tables and caveats
  lengths.png  lengths.svg    curves
  index.html                  all of it as a page
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from zoo.comparison.frame import MEASURES
from zoo.comparison.runs import options
from zoo.console import command
from zoo.errors import InputError, Problem, RunError
from zoo.evaluation.evaluate import evaluate_runs
from zoo.evaluation.measurement import Measurement, flat_rows, merged
from zoo.evaluation.store import EVALUATION, PAGE, locked, read_measurements
from zoo.figures.curves import pictures
from zoo.files import atomic_write, shortest
from zoo.launch.ranks import is_first_process
from zoo.reports.report import run_report
from zoo.reports.tables import report_page
from zoo.reports.text import console, markdown, terminal_width
from zoo.runs.card import read_card
from zoo.runs.checkpoint_file import find_checkpoint
from zoo.runs.folder import RESULTS, kept_checkpoints


def evaluate(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    devices: int | None = None,
    data: str | None = None,
) -> list[dict[str, Any]]:
    """Evaluate runs or checkpoints, and show the results of each: arguments as of `evaluate_runs`.

    Returns: the rows, as in `lengths.json`.

    Raises:
        InputError: as `evaluate_runs`.
        RunError: a process that shared the work has ended, or nothing at all could be measured.
        KeyboardInterrupt: stopped on demand; its text has the command for the rest.
    """
    measured: list[Measurement] = []
    done: list[Path] = []
    folders: dict[str, None] = {}
    try:
        for run, measuring in evaluate_runs(paths, lengths, protocols, sets, devices, data):
            own: list[Measurement] = []
            try:
                for one in measuring:
                    own = merged([*own, one])
            finally:
                # Measurements are shown, even if they cannot be stored or a later run fails.
                if is_first_process() and own:
                    folders[shortest(run.folder / EVALUATION)] = None
                    # Only their paths tell runs of one recipe apart.
                    show_results(run.folder, own, shortest(run.path) if len(paths) > 1 else None)
            done.append(run.path)
            measured += own
    except KeyboardInterrupt:
        rest = [path for path in paths if path not in done] or paths
        words = ["evaluate", *rest, *options(protocols, lengths)]
        words += [word for one in sets for word in ("--set", one)] + (["--data", data] if data else [])
        again = command(*words, *["--devices", devices] * ((devices or 1) > 1))
        kept = f"what was measured is kept in {', '.join(folders)}" if folders else "nothing was written"
        raise KeyboardInterrupt(f"interrupted; {kept}; measure the rest: {again}") from None
    rows = flat_rows(measured)
    if is_first_process():
        print(f"results, tables, plots and a page (index.html): {', '.join(folders)}", flush=True)
        if all("note" in row for row in rows):
            notes = "; ".join(dict.fromkeys(row["note"] for row in rows))
            raise RunError(f"nothing could be measured: {notes}")
    return rows


def show_results(folder: Path, measurements: Sequence[Measurement], name: str | None = None) -> None:
    """Print the tables of some measurements of a run, and write the files made from all that it has.

    Args:
        name: of the run in the title; by default that in its recipe.
    """
    print(console(run_report(folder, measurements, name), terminal_width()) + "\n", flush=True)
    write_results(folder)


def write_results(folder: Path) -> None:
    """Write the tables, curves and page of all measurements of a run."""
    file = folder / RESULTS
    with locked(folder):
        measured = read_measurements(folder)
        report = run_report(folder, measured)
        atomic_write(file.with_suffix(".csv"), rows_as_csv(flat_rows(measured)))
        atomic_write(file.with_suffix(".md"), markdown(report))
        drawn = pictures(report.summary)
        for ending, picture in drawn.items():
            atomic_write(file.with_suffix(ending), picture)
        atomic_write(folder / PAGE, report_page(report, svg=drawn.get(".svg", b"")))


def rows_as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each row of `lengths.json`, the note last; mappings are JSON."""
    table = pd.DataFrame(rows, dtype=object)
    table = table.map(lambda one: json.dumps(one, sort_keys=True) if isinstance(one, dict) else one)
    return table[sorted(table, key="note".__eq__)].to_csv(index=False)


def evaluate_steps(paths: Sequence[Path], *how: Any) -> list[dict[str, Any]]:
    """Evaluate the kept checkpoints of each run and its last one, and print the scores by step.

    Errors, result and the other arguments are those of `evaluate`; the paths are run folders.
    """
    measured: list[dict[str, Any]] = []
    found = {path: (kept_checkpoints(path), find_checkpoint(path)) for path in paths}
    if without := [path for path, (kept, _) in found.items() if not kept]:
        advice = "only a run with checkpoint.keep_every_n_steps keeps checkpoints"
        message = f"no checkpoints/step-N.ckpt in it: {advice}"
        raise InputError(Problem(message, where=str(path)) for path in without)
    for path, (kept, last) in found.items():
        files = [file for step, file in kept.items() if step != read_card(path)["steps"]]
        measured += (own_rows := evaluate([*files, last], *how))
        rows = pd.DataFrame(own_rows)
        for protocol, own in rows.groupby("protocol", sort=False) if is_first_process() else ():
            measure = next(one for one in MEASURES if one in own and own[one].notna().any())
            print(f"\n{path}: {measure} by step and length ({protocol})")
            scores = own.pivot_table(measure, "step", "length", aggfunc="first")
            scores = scores.rename_axis(index=None, columns="step")
            print(scores.to_string(float_format="{:.4g}".format), flush=True)
    return measured
