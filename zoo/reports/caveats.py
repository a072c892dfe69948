"""What a reader of a comparison should know and what is no reason to refuse it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from zoo.evaluation.curves import MAIN, kind_of, protocol_text
from zoo.evaluation.exports import seen_in_training
from zoo.recipe.diff import decides_speed, flatten
from zoo.recipe.rules import no_protocol
from zoo.reports.commands import changes, evaluate_command, settings, to_ask
from zoo.reports.comparable import changed_on_the_way, differing
from zoo.reports.compared_run import METRICS, SPEED, Run
from zoo.reports.intervals import UNITS
from zoo.reports.panels import NOT_FINITE, is_noted_whole
from zoo.reports.report import Panel, Remark
from zoo.reports.series import Line
from zoo.reports.targets import ELSEWHERE, between_lengths

MOST = 8
"""Remarks of one kind."""
COMMANDS = 3
"""What one remark lists, and the commands in it."""


def remarks(
    runs: Sequence[Run], lines: Sequence[Line], panels: Sequence[Panel], alone: Sequence[Panel] = ()
) -> tuple[Remark, ...]:
    """All of them, a sentence each; one that evaluation would mend has the commands.

    Args:
        panels: those that are shown.
        alone: those that are not, because they have one curve and nothing to compare it with.
    """
    return (
        *of_runs(runs),
        *_remarks(_seeds(lines)),
        *_remarks(_first(_missing(lines, panels))),
        *_remarks(_first(_without_units(runs))),
        *_remarks(_empty(lines, panels)),
        *_remarks(_first(_alone(alone))),
        *_remarks(_first(_unmeasured(lines, [*panels, *alone]))),
    )


def _remarks(said: Iterable[str | Remark]) -> list[Remark]:
    return [one if isinstance(one, Remark) else Remark(one) for one in said]


def of_runs(runs: Sequence[Run]) -> list[Remark]:
    """What there is to say of the runs themselves."""
    return _remarks([
        *_versions(runs),
        *_unfinished(runs),
        *changed_on_the_way(runs),
        *_speed(runs),
        *_left_out(runs),
        *_first(between_lengths(runs)),
        *_first(_seen(runs)),
    ])  # fmt: skip


def _versions(runs: Sequence[Run]) -> list[str]:
    found = []
    versions = [(run.path, flatten(run.card.get("versions") or {})) for run in runs]
    for one in differing([(path, {("version of", k): v for k, v in own.items()}) for path, own in versions]):
        found.append(f"{one}")
    commits = [(run.path, {("git", "commit"): run.card.get("git_commit")}) for run in runs]
    return [*found, *map(str, differing(commits))]


def _unfinished(runs: Sequence[Run]) -> list[str]:
    open_ = [run for run in runs if run.card.get("finished") is not True]
    # Where others are finished it is a difference, and told as one.
    if not open_ or len(open_) < len(runs):
        return []
    return [f"no run is finished: {', '.join(run.path for run in runs)}"]


def _speed(runs: Sequence[Run]) -> list[str]:
    computed = []
    for run in runs:
        keys = flatten(run.recipe).items()
        computed.append((run.path, {("recipe", key): value for key, value in keys if decides_speed(key)}))
    found = [f"{one}: tokens per second do not compare" for one in differing(computed)]
    unknown = [run.path for run in runs if run.speed is None]
    if unknown:
        found.append(f"no {SPEED} in {METRICS} of {', '.join(unknown)}: how fast it trained is not known")
    return found


def _left_out(runs: Sequence[Run]) -> list[str]:
    return [f"{run.path}: {said}" for run in runs for said in run.left_out]


def _seen(runs: Sequence[Run]) -> list[str]:
    """Runs that may have been trained on some of what they are scored on."""
    paths: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        if said := seen_in_training(run.rows):
            paths[said].append(run.path)
    return [f"{', '.join(own)}: {said}" for said, own in paths.items()]


def _without_units(runs: Sequence[Run]) -> list[Remark]:
    """Rows of which no difference has an interval, since what each document or example gave is not known."""
    old: dict[tuple[str, str, tuple[str, ...]], tuple[dict[str, None], set[int], set[int]]] = defaultdict(
        lambda: ({}, set(), set())
    )
    for run in runs:
        for row in run.rows:
            if "note" in row or UNITS in row:
                continue
            protocol, parameters = kind_of(row)
            sets = (*settings(run.recipe, json.loads(parameters)), *changes(row.get("changed") or {}))
            paths, lengths, there = old[protocol, parameters, sets]
            paths[run.path] = None
            lengths.add(row["length"])
            there |= {one["length"] for one in run.rows if kind_of(one) == (protocol, parameters)}
    return [
        Remark(
            f"{protocol_text(protocol, json.loads(parameters))}: of {', '.join(paths)} it is not stored "
            f"what each document or example gave at {', '.join(map(str, sorted(lengths)))}, and differences "
            "have no interval over them; measure them again with",
            (evaluate_command(paths, protocol, to_ask(json.loads(parameters), there, lengths), sets),),
        )
        for (protocol, parameters, sets), (paths, lengths, there) in old.items()
    ]


def _seeds(lines: Sequence[Line]) -> list[str]:
    groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for line in lines:
        groups[tuple(run.seed for run in line.runs)].append(line.label)
    if len(groups) < 2:
        return []
    told = (
        f"{', '.join(map(str, seeds))} for {', '.join(labels)}" for seeds, labels in sorted(groups.items())
    )
    return [f"the seeds are not the same: {'; '.join(told)}"]


def _missing(lines: Sequence[Line], panels: Sequence[Panel]) -> list[Remark]:
    """Lengths and protocols that some runs have and others were not evaluated by; a remark for each run."""
    # What one command mends is told at once.
    of_run: dict[str, dict[tuple, list[tuple[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for panel in panels:
        for line in lines:
            for run, rows in zip(line.runs, line.rows, strict=True):
                own = [row for row in rows if kind_of(row) == panel.kind]
                lengths = [one for one in panel.lengths if one not in {row["length"] for row in own}]
                # Of runs that were compared by force, the tasks may differ.
                foreign = no_protocol(panel.protocol, run.recipe["task"]["name"])
                if lengths and not foreign and not is_noted_whole(own):
                    sets = (*settings(run.recipe, panel.parameters), *changes(line.changed))
                    label = line.label if line.changed else ""
                    ask = tuple(to_ask(panel.parameters, panel.lengths, lengths))
                    of_run[run.path][ask, sets, label].append(panel.kind)
    alike: dict[tuple, list[str]] = defaultdict(list)
    for path, commands in of_run.items():
        alike[tuple((*key, tuple(kinds)) for key, kinds in commands.items())].append(path)
    return [_lack(sorted(paths), lacking) for lacking, paths in alike.items()]


def _lack(paths: Sequence[str], lacking: Sequence[tuple]) -> Remark:
    """What some runs were not evaluated by, and the commands that mend it."""
    told = [
        f"not evaluated{f' as {label}' if label else ''} by "
        f"{', '.join(protocol_text(name, json.loads(text)) for name, text in kinds)} at "
        f"{', '.join(map(str, ask))}"
        for ask, _, label, kinds in lacking
    ]
    commands = [
        evaluate_command(paths, ",".join(dict.fromkeys(name for name, _ in kinds)), ask, sets)
        for ask, sets, _, kinds in lacking[:COMMANDS]
    ]
    return Remark(f"{', '.join(paths)}: {'; '.join(_first(told, COMMANDS))}; do it with", tuple(commands))


def _first(said: Iterable[str | Remark], most: int = MOST) -> list[str | Remark]:
    """As many as a reader has the patience for, and the number of the others."""
    said = list(said)
    return said[:most] + [f"and {len(said) - most} more"] * (len(said) > most)


def _empty(lines: Sequence[Line], panels: Sequence[Panel]) -> list[str]:
    """Lengths at which there are only notes."""
    alike: dict[tuple, list[str]] = defaultdict(list)
    for panel in panels:
        left_out = sorted(
            (row["length"], str(row["note"]))
            for row in (row for line in lines for rows in line.rows for row in rows)
            if kind_of(row) == panel.kind
            and row["length"] not in panel.lengths
            # `between_lengths` has those, with what mends them.
            and row["note"] != ELSEWHERE
        )
        if left_out:
            lengths, notes = (tuple(dict.fromkeys(one)) for one in zip(*left_out, strict=True))
            alike[lengths, notes].append(protocol_text(panel.protocol, panel.parameters))
    return _first(
        f"{', '.join(kinds)} at {', '.join(map(str, lengths))}: left out, for nothing could be measured: "
        f"{'; '.join(_first(map(str, notes), COMMANDS))}"
        for (lengths, notes), kinds in alike.items()
    )


def _alone(panels: Sequence[Panel]) -> list[str]:
    return [
        f"{protocol_text(panel.protocol, panel.parameters)} was measured for "
        f"{', '.join(curve.label for curve in panel.curves)} alone, and is left out"
        for panel in panels
    ]


def _unmeasured(lines: Sequence[Line], panels: Sequence[Panel]) -> list[str]:
    """Protocols by which nothing could be measured, and why."""
    shown, kinds = {panel.protocol for panel in panels}, {panel.kind for panel in panels}
    why: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for row in (row for line in lines for rows in line.rows for row in rows):
        if row["protocol"] not in shown or ("note" not in row and kind_of(row) not in kinds):
            infinite = all(row.get(measure) is None for measure in MAIN)
            why[kind_of(row)][str(row.get("note", NOT_FINITE if infinite else "no measure in common"))] = None
    return [
        f"nothing could be measured by {protocol_text(kind[0], json.loads(kind[1]))}: {'; '.join(notes)}"
        for kind, notes in why.items()
    ]
