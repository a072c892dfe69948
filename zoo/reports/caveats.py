"""What a reader of a report should know, and what is no reason to refuse the comparison."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from zoo.evaluation.measurement import TOO_FEW
from zoo.recipe.diff import decides_speed, flatten
from zoo.recipe.rules import no_protocol
from zoo.reports.commands import changes, evaluate_command, lengths_to_ask, settings
from zoo.reports.comparable import changes_on_resume, differing, on_common_targets
from zoo.reports.compared_run import METRICS, SPEED, Row, Run
from zoo.reports.formatting import protocol_text
from zoo.reports.panels import is_unread_window
from zoo.reports.report import NOT_FINITE, Caveat, Panel
from zoo.reports.series import Series

MOST = 8
"""Caveats of one kind."""


def caveats_of(
    runs: Sequence[Run], series: Sequence[Series], panels: Sequence[Panel], alone: Sequence[Panel]
) -> tuple[Caveat, ...]:
    """All of them, a sentence each; one that an evaluation would remove has the command.

    Args:
        runs: with all of their measurements.
        panels: those that are shown.
        alone: those that are not, because they have one curve and nothing to compare it with.
    """
    rivals = []
    for panel in alone:
        labels = ", ".join(curve.label for curve in panel.curves)
        rivals.append(Caveat(f"{_kind_text(panel.kind)} was measured for {labels} alone, and is left out"))
    return (
        *caveats_of_runs(runs),
        *_seeds(series),
        *_first(_missing(series, panels)),
        *_first(_only_notes(series, panels)),
        *_first(rivals),
        *_first(_unmeasured(series, [*panels, *alone])),
    )


def caveats_of_one_run(
    runs: Sequence[Run], series: Sequence[Series], panels: Sequence[Panel]
) -> tuple[Caveat, ...]:
    """Those of a run that is compared with nothing but itself."""
    parts = _seen(runs), _remarks(runs), _only_notes(series, panels), _unmeasured(series, panels, every=True)
    return tuple(one for part in parts for one in _first(part))


def caveats_of_runs(runs: Sequence[Run]) -> list[Caveat]:
    """What there is to say of the runs themselves."""
    unfinished = [run.path for run in runs if run.card.get("finished") is not True]
    # Where others are finished it is a difference.
    none_finished = [f"no run is finished: {', '.join(unfinished)}"] * (len(unfinished) == len(runs))
    left_out = (f"{run.path}: {said}" for run in runs for said in run.left_out)
    said = [*_versions(runs), *none_finished, *changes_on_resume(runs), *_speed(runs), *left_out]
    of_rows = on_common_targets(runs)[2], _seen(runs), _remarks(runs)
    return [*map(Caveat, said), *(one for part in of_rows for one in _first(part))]


def _versions(runs: Sequence[Run]) -> list[str]:
    known = []
    for run in runs:
        versions = flatten(run.card.get("versions") or {})
        code = {("version of", key): version for key, version in versions.items()}
        known.append((run.path, code | {("git", "commit"): run.card.get("git_commit")}))
    return [*map(str, differing(known))]


def _speed(runs: Sequence[Run]) -> list[str]:
    computed = []
    for run in runs:
        keys = flatten(run.recipe).items()
        computed.append((run.path, {("recipe", key): value for key, value in keys if decides_speed(key)}))
    found = [f"{one}: tokens per second do not compare" for one in differing(computed)]
    if unknown := [run.path for run in runs if run.speed is None]:
        found.append(f"no {SPEED} in {METRICS} of {', '.join(unknown)}: how fast it trained is not known")
    return found


def _seen(runs: Sequence[Run]) -> list[Caveat]:
    """Runs that may have been trained on some of what they are scored on."""
    paths: dict[str, dict[str, None]] = defaultdict(dict)
    for run in runs:
        if said := _seen_in_training(run.rows):
            paths[said][run.path] = None
    return [Caveat(f"{', '.join(own)}: {said}") for said, own in paths.items()]


def _remarks(runs: Sequence[Run]) -> list[Caveat]:
    """The remarks of measured rows."""
    found: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for run in runs:
        for one in run.measurements:
            for row in one.rows:
                if row.remark is not None:
                    found[run.path, _kind_text(one.kind), row.remark].add(row.length)
    return [
        Caveat(f"{path}: {kind} at {_listed(sorted(lengths))}: {remark}")
        for (path, kind, remark), lengths in found.items()
    ]


def _seen_in_training(rows: Iterable[Row]) -> str:
    """At which lengths training may have seen what was scored, and how much of it; empty where it did not."""
    lengths: dict[float, set[int]] = defaultdict(set)
    for row in rows:
        if row.get("seen_in_training"):
            lengths[row["seen_in_training"]].add(row["length"])
    parts = [f"{share:.0%} of what is scored at {_listed(sorted(own))}" for share, own in lengths.items()]
    return f"training may have seen {' and '.join(parts)}: {TOO_FEW}" if parts else ""


def _seeds(series: Sequence[Series]) -> list[Caveat]:
    groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for one in series:
        groups[tuple(run.seed for run in one.runs)].append(one.label)
    parts = [f"{_listed(seeds)} for {', '.join(labels)}" for seeds, labels in sorted(groups.items())]
    return [Caveat(f"the seeds are not the same: {'; '.join(parts)}")] if len(parts) > 1 else []


def _missing(series: Sequence[Series], panels: Sequence[Panel]) -> list[Caveat]:
    """Lengths and protocols that some runs have and others were not evaluated by; what one command measures
    is one caveat."""
    lacking: dict[tuple, list[str]] = defaultdict(list)
    for panel in panels:
        for one in series:
            for run in one.runs:
                own = run.of(panel.kind)
                lengths = [n for n in panel.lengths if n not in {row["length"] for row in own}]
                # Of runs that were compared by force, the tasks may differ.
                foreign = no_protocol(panel.protocol, run.recipe["task"]["name"])
                if lengths and not foreign and not is_unread_window(own):
                    sets = (*settings(run.recipe, panel.parameters), *changes(one.changed))
                    ask = tuple(lengths_to_ask(panel.parameters, lengths))
                    lacking[panel.kind, one.label if one.changed else "", ask, sets].append(run.path)
    commands: dict[tuple, list[tuple[str, str, str]]] = defaultdict(list)
    for (kind, label, ask, sets), paths in lacking.items():
        commands[tuple(sorted(paths)), label, ask, sets].append(kind)
    return [
        Caveat(
            f"{', '.join(paths)}: not evaluated{f' as {label}' if label else ''} by "
            f"{', '.join(map(_kind_text, kinds))} at {_listed(ask)}; do it with",
            evaluate_command(paths, [*dict.fromkeys(kind[0] for kind in kinds)], ask, sets),
        )
        for (paths, label, ask, sets), kinds in commands.items()
    ]


def _only_notes(series: Sequence[Series], panels: Sequence[Panel]) -> list[Caveat]:
    """Lengths at which nothing could be measured."""
    alike: dict[tuple, list[str]] = defaultdict(list)
    for panel in panels:
        rows = [row for one in series for row in one.rows_of(panel.kind)]
        left_out = sorted((row["length"], row["note"]) for row in rows if row["length"] not in panel.lengths)
        if left_out:
            lengths, notes = (tuple(dict.fromkeys(one)) for one in zip(*left_out, strict=True))
            alike[lengths, notes].append(_kind_text(panel.kind))
    return [
        Caveat(
            f"{', '.join(kinds)} at {_listed(lengths)}: left out, for nothing could be measured: "
            f"{'; '.join(notes)}"
        )
        for (lengths, notes), kinds in alike.items()
    ]


def _unmeasured(series: Sequence[Series], panels: Sequence[Panel], every: bool = False) -> list[Caveat]:
    """Protocols by which nothing could be measured, and why; `every` one, also where the same protocol is
    shown with other parameters."""
    shown, kinds = {panel.protocol for panel in panels}, {panel.kind for panel in panels}
    why: dict[tuple[str, str, str], dict[str, None]] = defaultdict(dict)
    for one in (one for own in series for run in own.runs for one in run.measurements):
        for row in one.rows:
            if one.kind not in kinds and (every or one.protocol not in shown or row.note is None):
                why[one.kind][row.note or NOT_FINITE] = None
    return [
        Caveat(f"nothing could be measured by {_kind_text(kind)}: {'; '.join(notes)}")
        for kind, notes in why.items()
    ]


def _kind_text(kind: tuple[str, str, str]) -> str:
    return protocol_text(kind[0], json.loads(kind[1]))


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _first(found: Sequence[Caveat]) -> list[Caveat]:
    """As many as a reader has the patience for, and the number of the others."""
    more = [Caveat(f"and {len(found) - MOST} more")] if len(found) > MOST else []
    return [*found[:MOST], *more]
