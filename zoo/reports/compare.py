"""`zoo compare`: run folders in, tables, plots and a page out; and what differs between two runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from zoo.console import table
from zoo.errors import InputError, Problem, printable
from zoo.recipe.diff import ENCODING, flatten, is_among
from zoo.recipe.rules import no_protocol
from zoo.reports.caveats import caveats_of, caveats_of_runs
from zoo.reports.commands import command, options
from zoo.reports.comparable import (
    KeyDifference,
    differences,
    differing,
    facts,
    is_of_the_encoding,
    on_common_targets,
    value_as_text,
)
from zoo.reports.compared_run import VARIES, Run, about, common, read_runs
from zoo.reports.models import models_report
from zoo.reports.panels import costs, panels, ranked, with_rivals
from zoo.reports.report import Report
from zoo.reports.series import series_of
from zoo.reports.text import console, terminal
from zoo.reports.verdict import verdict
from zoo.reports.write import validate_out, write_report

OUT = Path("comparison")
TOKENIZER = ("card", "fingerprint.tokenizer")


def compare(
    paths: Sequence[Path],
    out: Path = OUT,
    protocols: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    force: bool = False,
    reference: str | None = None,
    models: bool = False,
) -> Report:
    """Compare evaluated runs: print the tables, and write them with the plots and the page.

    Args:
        paths: run folders.
        out: the folder of the comparison; one that is there is replaced.
        protocols: names; by default all by which one of the runs was evaluated.
        lengths: in tokens; by default all at which one was.
        force: compare runs that are not comparable, and mark it on every output.
        reference: the label of the curve that differences are to; by default the best at the trained length.
        models: compare them as models, whatever they differ in (`zoo.reports.models`).

    Raises:
        InputError: runs that cannot be read, were not evaluated or are not comparable, with all that is
            wrong; or a folder that holds anything else.
    """
    validate_out(out)
    report = build(paths, protocols, lengths, force, out, reference, models)
    print(console(report, *terminal()), flush=True)
    written = write_report(report, out)
    print(f"\ntables, plots and page: {printable(', '.join(map(str, written)))}")
    print(f"\n{printable(report.verdict)}", flush=True)
    return report


def build(
    paths: Sequence[Path],
    protocols: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    force: bool = False,
    out: Path = OUT,
    reference: str | None = None,
    models: bool = False,
) -> Report:
    """The report that compares some runs; arguments and errors as of `compare`."""
    wanted = options(protocols, lengths)
    runs = _chosen(read_runs(paths, wanted=wanted), protocols, lengths)
    words = ["compare", *["--models"] * models, *map(str, paths), *wanted]
    words += ["--reference", reference] if reference else []
    words += ["--out", str(out)] * (out != OUT) + ["--force"] * force
    if models:
        measure = command(["evaluate", *(run.path for run in runs), *wanted])
        report = replace(models_report(runs, measure, reference), command=command(words))
        return replace(report, verdict=verdict(report))
    found = differences(runs)
    if found and not force:
        raise _refusal(found)
    series = series_of(on_common_targets(runs)[0])
    shown, alone = with_rivals(panels(series))
    if not shown:
        rows = [row for one in series for run in one.runs for row in run.rows]
        notes = dict.fromkeys(f"{row['protocol']} at {row['length']}: {row.get('note')}" for row in rows)
        raise InputError("nothing was measured that could be compared: " + "; ".join(notes))
    shown = ranked(shown, series, reference)
    data = common(run.recipe["data"]["name"] for run in runs)
    length = common(run.recipe["data"]["sequence_length"] for run in runs)
    report = Report(
        title=f"{len(series)} encoding{'s' * (len(series) > 1)}"
        + (f" on {data}" if data != VARIES else "")
        + (f", trained at {length} tokens" if length != VARIES else ""),
        panels=shown,
        costs=costs(series, shown),
        differences=tuple(map(str, found)),
        about=tuple(about(runs)),
        command=command(words),
        caveats=caveats_of(runs, series, shown, alone),
    )
    return replace(report, verdict=verdict(report))


def _refusal(found: Sequence[KeyDifference | str]) -> InputError:
    """Why runs are not compared, in full, and what may be done about it."""
    lines = ["not comparable:", *(f"  {one}" for one in found)]
    apart = next((one for one in found if isinstance(one, KeyDifference)), None)
    if apart:  # what was measured twice, or on other targets, may differ in nothing
        lines[0] += " they differ in more than the encoding and the seed"
        pair = [runs[0] for _, runs in apart.values[:2]]
        lines.append(f"see all that differs between two of them: {command(['compare', '--diff', *pair])}")
    if any(isinstance(one, KeyDifference) and one.key == TOKENIZER for one in found):
        lines.append("compare them as models, in bits per byte of the same documents: --models")
    lines.append("compare them nevertheless, marked on every output: --force")
    return InputError(map(Problem, lines))


def _chosen(runs: Sequence[Run], protocols: Sequence[str] | None, lengths: Sequence[int] | None) -> list[Run]:
    """The runs with only those measurements, and of these the rows, that were asked for."""
    problems, chosen = [], []
    able = [run.path for run in runs if not _faults(run, protocols)]
    remedy = command(["evaluate", *able, *options(protocols, lengths)])
    for by, key, asked in (("by", "protocol", protocols), ("at", "length", lengths)):
        there = sorted({row[key] for run in runs for row in run.rows})
        absent = [one for one in asked or () if one not in there]
        if absent and able:
            said = f"{by} {_listed(absent)}, only {by} {_listed(there)}"
            problems.append(Problem(f"no run was evaluated {said}; do it with: {remedy}"))
        elif absent:
            problems += map(Problem, _faults(runs[0], protocols))
    for run in runs if not problems else ():
        kept = []
        for one in run.measurements:
            rows = [row for row in one.rows if not lengths or row.length in lengths]
            if rows and (not protocols or one.protocol in protocols):
                kept.append(one.model_copy(update={"rows": rows}))
        if not kept:
            remedy = command(["evaluate", run.path, *options(protocols, lengths)])
            faults = "; ".join(_faults(run, protocols))
            why = faults or f"was not evaluated so; do it with: {remedy}"
            problems.append(Problem(why, where=run.path))
        chosen.append(replace(run, measurements=tuple(kept)))
    if problems:
        raise InputError(dict.fromkeys(problems))
    return chosen


def _faults(run: Run, protocols: Sequence[str] | None) -> list[str]:
    """What is wrong with these protocols for a run's task; those of others may be compared by force."""
    task = run.recipe["task"]["name"]
    return [fault for name in protocols or () if (fault := no_protocol(name, task))]


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


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
    named = " and ".join(run.path for run in runs)
    parts = [f"{named}: {'not comparable, because of' if found else 'comparable'}"]
    if keys:
        parts.append(_as_table(runs, keys))
    parts += [f"  {one}" for one in found if one not in keys]
    allowed = [one for one in _all_differences(runs) if one.key not in {key.key for key in keys}]
    if allowed:
        parts += ["", "what comparable runs may differ in:", _as_table(runs, allowed)]
    said = [*caveats_of_runs(runs), *(f"{run.path}: not evaluated" for run in runs if not run.measurements)]
    if said:
        parts += ["", "caveats:", *(f"  {one}" for one in said)]
    return "\n".join(parts)


def _all_differences(runs: Sequence[Run]) -> list[KeyDifference]:
    """Of every key of the recipes, and those of the cards that say what was trained and by which code."""
    named = []
    # Of two encodings the options are no differences: each has its own.
    same = runs[0].label == runs[1].label
    # An encoding of a plugin that was edited is another one under the same name.
    shared = facts(runs[0]).keys() & facts(runs[1]).keys()
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


def _as_table(runs: Sequence[Run], found: Sequence[KeyDifference]) -> str:
    rows = []
    for one in found:
        value = {path: value_as_text(value) for value, paths in one.values for path in paths}
        rows.append((f"  {one.key[0]}", one.key[1], *(value[run.path] for run in runs)))
    return table(("  in", "key", *(run.path for run in runs)), rows)
