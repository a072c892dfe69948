"""Which tokens or examples were scored: the same ones wherever values stand in one column or on one line."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from zoo.evaluation.curves import kind_of, protocol_text
from zoo.reports.commands import changes, evaluate_command, setting, settings, to_ask
from zoo.reports.compared_run import Row, Run
from zoo.reports.groups import Groups, grouped, told
from zoo.reports.report import Remark

ABOUT = (
    "run", "encoding", "changed", "checkpoint", "step", "seed", "protocol", "parameters", "length",
    "train_length",
)  # fmt: skip
"""What a row says beside its measures."""
ELSEWHERE = "other targets were scored than at the other lengths"

Reading = tuple[tuple[str, str], str]
"""A protocol with its parameters, and what was changed of the encoding."""


def between_runs(runs: Sequence[Run]) -> list[str]:
    """Rows of one protocol and length for which other tokens or examples were scored, and what mends it."""
    at: dict[tuple, list[tuple[Run, Row]]] = defaultdict(list)
    for run in runs:
        for row in _measured(run):
            at[(*kind_of(row), row["length"])].append((run, row))
    found: dict[tuple[str, str, str, Groups], list[int]] = defaultdict(list)
    for (protocol, parameters, length), rows in sorted(at.items(), key=lambda one: one[0]):
        for what in ("targets", "tokens"):
            groups = grouped((run.path, row[what]) for run, row in rows if row.get(what) is not None)
            # Where a digest tells it, counts have nothing to add.
            verified = all(row.get("targets") is not None for _, row in rows)
            if len(groups) > 1 and (what == "targets" or not verified):
                found[protocol, parameters, what, groups].append(length)
                break
    return [
        f"{protocol_text(protocol, json.loads(parameters))} at {_listed(lengths)}: "
        f"{'other targets were scored' if what == 'targets' else 'other numbers of tokens'}: {told(groups)}; "
        f"{_mended(runs, (protocol, parameters), lengths)}"
        for (protocol, parameters, what, groups), lengths in found.items()
    ]


def _mended(runs: Sequence[Run], kind: tuple[str, str], lengths: Iterable[int]) -> str:
    """Why targets differ, and the commands after which they do not."""
    asked: dict[tuple[str, ...], list[str]] = {}
    there = set(lengths)
    evaluated = [run for run in runs if any(kind_of(row) == kind for row in _measured(run))]
    key = "samples" if kind[0] == "accuracy" else "max_tokens"
    chosen = sorted({own for run in evaluated if isinstance(own := setting(run.recipe, key), int)})
    same = (f"evaluate.{key}={chosen[-1]}",) if len(chosen) > 1 else ()
    for run in evaluated:
        for row in (row for row in _measured(run) if kind_of(row) == kind):
            sets = (*settings(run.recipe, json.loads(kind[1])), *same, *changes(row.get("changed") or {}))
            paths = asked.setdefault(sets, [])
            paths += [run.path] if run.path not in paths else []
            # Of a text, all lengths of a run have the same targets.
            there |= {row["length"]} if _is_of_text(row) else set()
    ask = to_ask(json.loads(kind[1]), there, there)
    commands = [evaluate_command(paths, kind[0], ask, sets) for sets, paths in asked.items()]
    cause = f"the recipes differ in evaluate.{key}" if same else f"evaluated with another evaluate.{key}"
    return f"{cause}, or by another version; measure them again with: {'; '.join(commands)}"


def between_lengths(runs: Sequence[Run]) -> list[Remark]:
    """Texts of which a run scored other targets at one length than at another, and what mends it."""
    chosen = _chosen(runs)
    groups: dict[tuple, list[str]] = defaultdict(list)
    for run in runs:
        for reading, digests in _digests(run).items():
            if len(digests) > 1:
                (protocol, parameters), changed = reading
                kept = digests[chosen[run.path, reading]]
                left = sorted(set().union(*digests.values()) - set(kept))
                sets = (*settings(run.recipe, json.loads(parameters)), *changes(json.loads(changed)))
                groups[protocol, parameters, tuple(kept), tuple(left), sets].append(run.path)
    return [
        Remark(
            f"{protocol_text(protocol, json.loads(parameters))}: at {_listed(left)}, which are left out, "
            f"other targets were scored than at {_listed(kept)} in {', '.join(paths)} (with another "
            f"evaluate.max_tokens, or by another version); measure all of them again with",
            (evaluate_command(paths, protocol, sorted([*kept, *left]), sets),),
        )
        for (protocol, parameters, kept, left, sets), paths in groups.items()
    ]


def on_one_target(runs: Sequence[Run]) -> list[Run]:
    """The runs with a note in place of each row on other targets than most of its line's."""
    chosen = _chosen(runs)
    return [replace(run, rows=[_kept(row, run, chosen) for row in run.rows]) for run in runs]


def _kept(row: Row, run: Run, chosen: dict[tuple[str, Reading], str]) -> Row:
    digest = chosen.get((run.path, _reading(row)))
    if "note" in row or not _is_of_text(row) or row.get("targets") in (None, digest):
        return row
    return {key: row[key] for key in ABOUT if key in row} | {"note": ELSEWHERE}


def _chosen(runs: Sequence[Run]) -> dict[tuple[str, Reading], str]:
    """Of each run and reading the targets that are shown: those that most lengths of all runs have."""
    lengths: dict[tuple, set[int]] = defaultdict(set)
    of_runs = [(run.path, _digests(run)) for run in runs]
    for _, readings in of_runs:
        for (kind, _), digests in readings.items():
            for digest, at in digests.items():
                lengths[kind, digest] |= set(at)

    def place(kind: tuple[str, str], digest: str) -> tuple:
        return -len(lengths[kind, digest]), min(lengths[kind, digest]), digest

    return {
        (path, reading): min(digests, key=lambda digest, kind=reading[0]: place(kind, digest))
        for path, readings in of_runs
        for reading, digests in readings.items()
    }


def _digests(run: Run) -> dict[Reading, dict[str, list[int]]]:
    """Of each text protocol the targets, with the lengths that have them."""
    found: dict[Reading, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(_measured(run), key=lambda row: row["length"]):
        if _is_of_text(row) and row.get("targets") is not None:
            found[_reading(row)][row["targets"]].append(row["length"])
    return found


def of_same_targets(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Runs in groups of which a mean may be taken, since they scored the same; and what each group scored."""
    groups: list[list[Run]] = []
    for run in runs:
        fitting = (group for group in groups if not any(_conflicts(run, other) for other in group))
        group = next(fitting, None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    named = []
    for group in groups:
        others = [run for other in groups if other is not group for run in other]
        apart = (row for run in group for other in others for row in _conflicts(run, other))
        row = next(apart, {})
        named.append((str(row.get("targets") or f"{row.get('tokens')} tokens"), group))
    return named


def _conflicts(one: Run, other: Run) -> list[Row]:
    """The rows of one run that cannot be averaged with the other's, or be on a line with them."""
    return [row for row in _measured(one) if any(_conflict(row, their) for their in _measured(other))]


def _conflict(one: Row, other: Row) -> bool:
    if _reading(one) != _reading(other):
        return False
    same_length, digests = one["length"] == other["length"], (one.get("targets"), other.get("targets"))
    if None not in digests:
        return digests[0] != digests[1] and (same_length or _is_of_text(one))
    counts = one.get("tokens"), other.get("tokens")
    return same_length and None not in counts and counts[0] != counts[1]


def _measured(run: Run) -> list[Row]:
    return [row for row in run.rows if "note" not in row]


def _reading(row: Row) -> Reading:
    return kind_of(row), json.dumps(row.get("changed") or {}, sort_keys=True)


def _is_of_text(row: Row) -> bool:
    # The examples of a task are others at every length.
    return "accuracy" not in row


def _listed(lengths: Iterable[int]) -> str:
    return ", ".join(map(str, lengths))
