"""The results of one run: stored in its folder, and shown in the tables and curves of a comparison.

evaluation/
  measurements/               a file for each measurement, with what each document or example gave
  lengths.json  lengths.csv   all their rows, flat
  lengths.md                  the report: tables and caveats
  lengths.png  lengths.svg    its curves
  index.html                  the same as a page
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from zoo.errors import InputError, printable
from zoo.evaluation.measurement import Measurement, flat_rows
from zoo.evaluation.store import PAGE, locked, read_measurements, store
from zoo.files import atomic_write
from zoo.reports.caveats import caveats_of_one_run
from zoo.reports.compared_run import Run, about, training_speed, validated_recipe
from zoo.reports.csv_export import rows_as_csv
from zoo.reports.panels import costs, panels, ranked
from zoo.reports.plot import plot
from zoo.reports.plot_page import page
from zoo.reports.report import Report
from zoo.reports.series import Series, unique
from zoo.reports.text import markdown
from zoo.reports.verdict import verdict
from zoo.runs.card import read_card
from zoo.runs.folder import METRICS, RESULTS


def store_results(folder: Path, measurements: Sequence[Measurement]) -> None:
    """Store measurements in a run folder, and write anew what is made from all that it has."""
    store(folder, measurements)
    file = folder / RESULTS
    with locked(folder):
        measured = read_measurements(folder)
        rows = flat_rows(measured)
        atomic_write(file, json.dumps(rows, indent=1, allow_nan=False) + "\n")
        atomic_write(file.with_suffix(".csv"), rows_as_csv(rows))
        report = run_report(folder, measured)
        atomic_write(file.with_suffix(".md"), markdown(report))
        for ending, picture in plot(report.panels).items():
            atomic_write(file.with_suffix(ending), picture)
        atomic_write(folder / PAGE, page(report))


def run_report(folder: Path, measurements: Iterable[Measurement], name: str | None = None) -> Report:
    """The report of one folder: a curve for each of its checkpoints, and for each change of the encoding.

    Args:
        name: of the run in the title; by default that in its recipe.
    """
    try:
        recipe, card = validated_recipe(folder), read_card(folder)
        speed = training_speed(folder / METRICS)
    except InputError:  # the measurements are shown without them
        recipe, card, speed = {}, {}, None
    same: dict[tuple[str, str, int, str], list[Measurement]] = {}
    for one in measurements:
        changed = json.dumps(one.changed, sort_keys=True)
        same.setdefault((one.encoding, one.checkpoint, one.seed, changed), []).append(one)
    several = len({checkpoint for _, checkpoint, _, _ in same}) > 1
    runs, series = [], []
    for (encoding, checkpoint, seed, _), own in same.items():
        label = f"{encoding} ({PurePosixPath(checkpoint).name})" if several else encoding
        of_seed, of_encoding = recipe | {"seed": seed}, card | {"encoding": encoding}
        runs.append(Run(str(folder), of_seed, of_encoding, tuple(own), speed=speed))
        series.append(Series(printable(label), (runs[-1],), own[0].changed))
    series = unique(series)
    shown = tuple(panel for panel in panels(series) if panel.curves)
    shown = ranked(shown, series) if shown else ()
    report = Report(
        title=f"{name or ', '.join(sorted({one.run for own in same.values() for one in own}))} by length",
        panels=shown,
        costs=costs(series, shown) if shown and card else (),
        about=tuple(about(runs)),
        caveats=caveats_of_one_run(runs, series, shown),
    )
    return replace(report, verdict=verdict(report)) if len(report.labels) > 1 else report
