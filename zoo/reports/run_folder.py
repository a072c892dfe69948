"""The results in a run folder: measurements, and the files that are made from all of them.

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

from zoo.evaluation.measurement import Measurement, flat_rows
from zoo.evaluation.store import PAGE, locked, read_measurements
from zoo.figures.curves import pictures
from zoo.files import atomic_write
from zoo.reports.report import run_report
from zoo.reports.tables import report_page
from zoo.reports.text import console, markdown, terminal_width
from zoo.runs.folder import RESULTS


def show_results(folder: Path, measurements: Sequence[Measurement], name: str | None = None) -> None:
    """Print the tables of some measurements of a run, and write the files made from all that it has.

    Args:
        name: of the run in the title; by default that in its recipe.
    """
    print(console(run_report(folder, measurements, name), terminal_width()) + "\n", flush=True)
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
    import pandas as pd

    table = pd.DataFrame(rows, dtype=object)
    table = table.map(lambda one: json.dumps(one, sort_keys=True) if isinstance(one, dict) else one)
    return table[sorted(table, key="note".__eq__)].to_csv(index=False)
