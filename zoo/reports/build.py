"""From run folders to one report that compares them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem
from zoo.recipe.rules import no_protocol
from zoo.reports.caveats import caveats_of
from zoo.reports.commands import command, compare_command, options
from zoo.reports.comparable import KeyDifference, differences
from zoo.reports.compared_run import Run, read_runs
from zoo.reports.panels import costs, ordered, panels, with_rivals
from zoo.reports.ranking import ranked
from zoo.reports.report import Report
from zoo.reports.series import Series, series_of
from zoo.reports.targets import on_common_targets
from zoo.reports.verdict import verdict

VARIES = "differs"


def build(
    paths: Sequence[Path],
    protocols: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    force: bool = False,
    out: Path | None = None,
    reference: str | None = None,
) -> Report:
    """Read runs and compare them.

    Args:
        paths: run folders.
        protocols: names; by default all by which one of the runs was evaluated.
        lengths: in tokens; by default all at which one was.
        force: compare runs that are not comparable; the report says why they are not.
        out: the folder that the command of the report names; None: none.
        reference: the label of the curve that differences are to; by default the best at the trained length.

    Raises:
        InputError: runs that cannot be read, were not evaluated or are not comparable.
    """
    wanted = options(protocols, lengths)
    runs = _chosen(read_runs(paths, wanted=wanted), protocols, lengths, wanted)
    found = differences(runs)
    if found and not force:
        raise refusal(found)
    series = series_of(on_common_targets(runs)[0])
    shown, alone = with_rivals(panels(series))
    if not shown:
        notes = dict.fromkeys(
            f"{row['protocol']} at {row['length']}: {row.get('note')}" for one in series for row in one.rows
        )
        raise InputError("nothing was measured that could be compared: " + "; ".join(notes))
    shown = ranked(ordered(shown), series, reference)
    report = Report(
        title=_title(runs, series),
        panels=shown,
        costs=costs(series, shown),
        differences=tuple(map(str, found)),
        about=tuple(about(runs)),
        command=compare_command(paths, protocols, lengths, out, force, reference),
        caveats=caveats_of(runs, series, shown, alone),
    )
    return replace(report, verdict=verdict(report))


def refusal(found: Sequence[KeyDifference | str]) -> InputError:
    """Why runs are not compared, in full, and what may be done about it."""
    apart = next((one for one in found if isinstance(one, KeyDifference)), None)
    hints = ["compare them nevertheless, marked on every output: --force"]
    if apart:
        pair = (group[0] for _, group in apart.values[:2])
        seen = command(["compare", "--diff", *pair])
        hints.insert(0, f"see all that differs between two of them: {seen}")
    # What was measured twice, or on other targets, may differ in nothing.
    why = " they differ in more than the encoding and the seed" if apart else ""
    return InputError(
        [Problem(f"not comparable:{why}")]
        + [Problem(f"  {one}") for one in found]
        + [Problem(hint) for hint in hints]
    )


def _chosen(
    runs: Sequence[Run], protocols: Sequence[str] | None, lengths: Sequence[int] | None, wanted: Sequence[str]
) -> list[Run]:
    """The runs with only those rows that were asked for."""
    of_protocol = [_selected(run, protocols, None) for run in runs]
    asked = [_selected(run, None, lengths) for run in of_protocol]
    known = {row["protocol"] for run in runs for row in run.rows}
    there = {row["length"] for run in of_protocol for row in run.rows}
    absent = [length for length in lengths or () if length not in there]
    problems = []
    for name in (name for name in protocols or () if name not in known):
        knowing = [run.path for run in runs if not _faults(run, [name])]
        fault = "" if knowing else _faults(runs[0], [name])[0]
        remedy = command(["evaluate", *knowing, *options([name], None)])
        problems.append(Problem(fault or f"no run was evaluated by {name}; do it with: {remedy}"))
    if absent and not problems:
        measured = f"no run was evaluated at {', '.join(map(str, absent))}, only at {_listed(there)}"
        knowing = [run.path for run in runs if not _faults(run, protocols)]
        remedy = f"; do it with: {command(['evaluate', *knowing, *wanted])}" if knowing else ""
        problems.append(Problem(measured + remedy))
    if not problems:
        problems = [
            Problem(_why_not_measured(run, protocols, wanted), where=run.path)
            for run in asked
            if not run.rows
        ]
    if problems:
        raise InputError(problems)
    return asked


def _selected(run: Run, protocols: Sequence[str] | None, lengths: Sequence[int] | None) -> Run:
    """A run with its measurements by these protocols, and of them the rows at these lengths."""
    kept = [one for one in run.measurements if not protocols or one.protocol in protocols]
    if lengths:
        kept = [
            one.model_copy(update={"rows": [row for row in one.rows if row.length in lengths]})
            for one in kept
        ]
    return replace(run, measurements=tuple(one for one in kept if one.rows))


def _why_not_measured(run: Run, protocols: Sequence[str] | None, wanted: Sequence[str]) -> str:
    """Why a run has nothing of what was asked for, and the command that measures it if one can."""
    faults = _faults(run, protocols)
    if faults:
        return "; ".join(faults)
    return f"was not evaluated so; do it with: {command(['evaluate', run.path, *wanted])}"


def _faults(run: Run, protocols: Sequence[str] | None) -> list[str]:
    """What is wrong with these protocols for a run's task; those of others may be compared by force."""
    task = run.recipe["task"]["name"]
    return [fault for name in protocols or () if (fault := no_protocol(name, task))]


def _listed(lengths: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(lengths)))


def _title(runs: Sequence[Run], series: Sequence[Series]) -> str:
    encodings = "1 encoding" if len(series) == 1 else f"{len(series)} encodings"
    data = _common(run.recipe["data"]["name"] for run in runs)
    length = _common(run.recipe["data"]["sequence_length"] for run in runs)
    on = f" on {data}" if data != VARIES else ""
    return f"{encodings}{on}" + (f", trained at {length} tokens" if length != VARIES else "")


def about(runs: Sequence[Run]) -> Iterable[tuple[str, str]]:
    """What runs share, for the reader of a table: names and values."""
    for name, read in _ABOUT.items():
        values = _common(_attempt(read, run) for run in runs)
        if values is not None:
            yield name, values if isinstance(values, str) else f"{values:,}"
    yield "seeds", ", ".join(map(str, sorted({run.seed for run in runs})))
    if len(paths := {run.path for run in runs}) > 1:
        yield "runs", str(len(paths))


_ABOUT = {
    "task": lambda run: run.recipe["task"]["name"],
    "data": lambda run: run.recipe["data"]["name"],
    "vocabulary": lambda run: run.recipe["data"].get("vocab_size"),
    "model": lambda run: "{kind}, {num_layers} layers of width {d_model}, {num_heads} heads".format(
        **run.recipe["model"]
    ),
    "parameters without the encoding's": lambda run: run.card["parameters"]["other"],
    "trained length (tokens)": lambda run: run.recipe["data"]["sequence_length"],
    "sequences per step": lambda run: run.recipe["data"]["batch_size"],
    "steps": lambda run: run.card["steps"],
    "tokens seen": lambda run: run.card["tokens_seen"],
}


def _attempt(read: Any, run: Run) -> Any:
    try:
        return read(run)
    except (KeyError, TypeError):  # a card of another version
        return None


def _common(values: Iterable[Any]) -> Any:
    values = list(values)
    return values[0] if all(value == values[0] for value in values) else VARIES
