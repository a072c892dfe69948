"""The results of one run: stored in its folder, and shown in its tables and curves.

evaluation/
  measurements/               a file for each measurement, with what each document or example gave
  lengths.json                all their rows, flat
  lengths.csv  lengths.md     the same for a spreadsheet, and as tables
  lengths.png  lengths.svg    the same as curves
  index.html                  the same as a page, of which all parts are those of a comparison's
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from zoo.errors import InputError, printable
from zoo.evaluation.measurement import Measurement, flat_rows
from zoo.evaluation.store import PAGE, locked, read_measurements, store
from zoo.files import atomic_write
from zoo.reports.build import about
from zoo.reports.caveats import caveats_of_one_run, seen_in_training
from zoo.reports.compared_run import Row, Run, training_speed, validated_recipe
from zoo.reports.console import table_text
from zoo.reports.csv_export import MEASURES, rows_as_csv
from zoo.reports.formatting import DASH, count_text, display_name, number, protocol_text
from zoo.reports.markdown import table_markdown, title_markdown
from zoo.reports.page import page
from zoo.reports.panels import costs, is_busy, main_measure, ordered, panels
from zoo.reports.plot import plot
from zoo.reports.ranking import ranked
from zoo.reports.report import Report
from zoo.reports.series import Series, unique
from zoo.reports.tables import BUSY, BUSY_MEANS, Cell, Footnotes, Line, Table
from zoo.reports.verdict import verdict
from zoo.runs.card import read_card
from zoo.runs.folder import METRICS, RESULTS

SPEED = "tokens/s: tokens that the model reads, by the seconds of the measurement, on all devices together"
"""In overlapping windows a token is read more than once."""


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
        parts = [title_markdown(report.title)]
        parts += map(table_markdown, results_tables(flat_rows(measured, units=True)))
        atomic_write(file.with_suffix(".md"), "\n\n".join(parts) + "\n")
        for ending, picture in plot(report.panels).items():
            atomic_write(file.with_suffix(ending), picture)
        atomic_write(folder / PAGE, page(report))


def run_report(folder: Path, measurements: Iterable[Measurement]) -> Report:
    """The report of one folder: a curve for each of its checkpoints, and for each change of the encoding."""
    try:
        recipe, card = validated_recipe(folder), read_card(folder)
        speed = training_speed(folder / METRICS)
    except InputError:  # the measurements are shown without them
        recipe, card, speed = {}, {}, None
    same: dict[tuple[str, str, int, str], list[Measurement]] = defaultdict(list)
    for one in measurements:
        same[one.encoding, one.checkpoint, one.seed, json.dumps(one.changed, sort_keys=True)].append(one)
    several = len({one[1] for one in same}) > 1
    series = []
    for (encoding, checkpoint, seed, _), own in same.items():
        label = f"{encoding} ({PurePosixPath(checkpoint).name})" if several else encoding
        run = Run(
            str(folder), recipe | {"seed": seed}, card | {"encoding": encoding}, tuple(own), speed=speed
        )
        series.append(Series(printable(label), (run,), own[0].changed))
    series = unique(series)
    shown = tuple(panel for panel in panels(series) if panel.curves)
    shown = ranked(ordered(shown), series) if shown else ()
    runs = [run for one in series for run in one.runs]
    report = Report(
        title=f"{', '.join(sorted({one.run for own in same.values() for one in own}))} by length",
        panels=shown,
        costs=costs(series, shown) if shown and "parameters" in card else (),
        about=tuple(about(runs)),
        caveats=caveats_of_one_run(runs, series, shown),
    )
    return replace(report, verdict=verdict(report)) if len(report.labels) > 1 else report


def results_text(rows: Sequence[Row], width: int | None = None, bold: bool = False) -> str:
    """Tables of results for a terminal, one for each kind of measurement; arguments as of `console`."""
    return "\n\n".join(table_text(table, width, bold) for table in results_tables(rows))


def results_tables(rows: Iterable[Row]) -> list[Table]:
    """A table for each protocol with its parameters on the same targets, a line for each length; and one of
    those that have no number at all."""
    kinds: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row["protocol"], json.dumps(row["parameters"], sort_keys=True), row["targets"]].append(row)
    tables = [_results_table(own) for own in kinds.values() if any("note" not in row for row in own)]
    empty = [row for own in kinds.values() if all("note" in row for row in own) for row in own]
    if empty:
        lines = [
            Line(str(row["encoding"]), tuple(map(Cell, (
                protocol_text(row["protocol"], row["parameters"]), str(row["length"]), row["note"]
            ))))
            for row in empty
        ]  # fmt: skip
        tables.append(Table("Not measured", ("encoding", "protocol", "length", "why"), tuple(lines)))
    return tables


def _results_table(rows: Sequence[Row]) -> Table:
    measured, notes = [row for row in rows if "note" not in row], Footnotes()
    main = main_measure(measured)
    others = [
        name for name in MEASURES if name != main and any(row.get(name) is not None for row in measured)
    ]
    runs = len({row["run"] for row in rows}) > 1
    header = ["run", "encoding"] if runs else ["encoding"]
    header += ["length", *map(display_name, (main, *others)), "tokens/s", "peak memory (MiB)"]
    lines = []
    for row in rows:
        cells = (
            *[Cell(str(row["encoding"]))] * runs,
            Cell(f"{row['length']} ({_ratio(row)})"),
            _value(row, main, notes),
            *(Cell(number(row.get(name))) for name in others),
            Cell(count_text(row.get("tokens_per_second")), mark=BUSY * is_busy(row)),
            Cell(count_text(row.get("peak_memory_mb"))),
        )
        lines.append(Line(str(row["run"] if runs else row["encoding"]), cells))
    scored, seen = what_is_scored(measured), seen_in_training(rows)
    title = protocol_text(rows[0]["protocol"], rows[0]["parameters"]) + (f": {scored}" if scored else "")
    intervals = "(low–high): 95 % interval" if any(f"{main}_low" in row for row in measured) else ""
    speed = SPEED if any(row.get("tokens_per_second") for row in measured) else ""
    busy = BUSY_MEANS if any(map(is_busy, measured)) else ""
    about = "; ".join(one for one in (intervals, speed, busy, seen) if one)
    return Table(title, tuple(header), tuple(lines), about, tuple(notes))


def _value(row: Row, measure: str | None, notes: Footnotes) -> Cell:
    if "note" in row:
        return Cell(DASH, note=notes.of(row["note"]))
    if row.get(measure) is None:
        return Cell("not finite")
    ends = [row.get(f"{measure}_low"), row.get(f"{measure}_high")]
    spread = "" if None in ends else f" ({'–'.join(map(number, ends))})"
    return Cell(number(row[measure]), spread=spread)


def what_is_scored(rows: Sequence[Row]) -> str:
    """`262,144 tokens of 60 documents`, where it is the same in all rows; else nothing."""
    parts = []
    tasks = any("accuracy" in row for row in rows)
    for name in ("examples",) if tasks else ("tokens", "documents"):
        counts = {row.get(name) for row in rows}
        if len(counts) == 1 and None not in counts:
            count = counts.pop()
            parts.append(f"{count:,} {name if count != 1 else name[:-1]}")
    return " of ".join(parts) + (" at each length" if tasks and parts else "")


def summary_line(rows: Sequence[Row]) -> str:
    """What came out by the first protocol, in one line."""
    first = rows[0]["protocol"]
    several = any(row["protocol"] != first for row in rows)
    rows = [row for row in rows if row["protocol"] == first]
    measured = [row for row in rows if "note" not in row]
    measure = "perplexity" if any("perplexity" in row for row in measured) else main_measure(measured)
    parts = [
        f"{'not finite' if row[measure] is None else number(row[measure])} at {row['length']} ({_ratio(row)})"
        for row in measured
    ]
    name = display_name(measure or "evaluation")
    line = f"{name}{f' ({first})' if several else ''}: {', '.join(parts) or 'not measured'}"
    for note in dict.fromkeys(row["note"] for row in rows if "note" in row):
        lengths = ", ".join(str(row["length"]) for row in rows if row.get("note") == note)
        line += f"; not at {lengths}: {printable(note)}"
    return line


def _ratio(row: Row) -> str:
    ratio = row["length"] / row["train_length"]
    if ratio >= 999.5:
        return f"{ratio:,.0f}x"
    return "trained" if ratio == 1 else f"{ratio:.3g}x" if ratio > 1 else f"{ratio:.2g}x"
