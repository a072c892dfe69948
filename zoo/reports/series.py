"""Which runs make a curve together, and what each curve is called."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from zoo.errors import printable
from zoo.reports.commands import ENCODING
from zoo.reports.comparable import Key, differing, duplicates, facts, is_of_the_encoding
from zoo.reports.compared_run import Row, Run
from zoo.reports.groups import spoken
from zoo.reports.targets import of_same_targets


@dataclass(frozen=True)
class Line:
    """Runs that differ in nothing but the seed, and the rows of one way of reading them."""

    label: str
    changed: dict[str, Any]
    """What was changed of the encoding after training; empty for the encodings as trained."""
    runs: tuple[Run, ...]
    rows: tuple[tuple[Row, ...], ...]
    """Of each run."""


def lines(runs: Sequence[Run]) -> list[Line]:
    """The curves of some runs, by label; no two have the same one.

    Runs are of one curve when all that tells runs apart agrees but the seed, and what was scored. Where a
    seed is there twice, each of its runs is a curve of its own.
    """
    twice = {run.path for group in duplicates(runs) for run in group}
    same: dict[str, list[Run]] = defaultdict(list)
    known: dict[str, dict[Key, Any]] = {}
    for run in runs:
        own = facts(run) | ({("run", "run"): run.path} if run.path in twice else {})
        text = json.dumps(sorted((key, json.dumps(value)) for key, value in own.items()))
        same[text].append(run)
        known[text] = own
    curves: dict[str, list[Run]] = {}
    named: dict[str, list[str]] = defaultdict(list)
    for text, members in sorted(same.items()):
        parts = of_same_targets(sorted(members, key=lambda run: (run.seed, run.path)))
        for targets, part in parts:
            own = f"{text} {part[0].path}"
            curves[own] = part
            known[own] = known[text] | ({("run", "targets"): targets} if len(parts) > 1 else {})
            named[part[0].label].append(own)

    made: list[Line] = []
    for name, alike in named.items():
        for text, suffix in zip(alike, _suffixes([known[text] for text in alike]), strict=True):
            made += _readings(name, suffix, curves[text])
    # As trained first, and what was changed least: it is the others that are told apart from it.
    made.sort(key=lambda line: (len(line.changed), line.label, [run.path for run in line.runs]))
    taken: dict[str, Line] = {}
    for line in made:
        label = next(name for name in _names(line, taken) if name not in taken)
        taken[label] = Line(label, line.changed, line.runs, line.rows)
    return [*taken.values()]


def _names(line: Line, taken: Mapping[str, Line]) -> Iterator[str]:
    """Its label, and others for where another curve has that already; without an end."""
    yield line.label
    if taken[line.label].runs[0].label != line.runs[0].label:
        yield f"{line.label} (trained: {line.runs[0].label})"
    changed = {key: value for key, value in line.changed.items() if key != f"{ENCODING}.name"}
    if changed:
        told = (f"{key.removeprefix(ENCODING + '.')}={spoken(value)}" for key, value in changed.items())
        yield f"{line.label} ({' '.join(told)})"
    yield from (f"{line.label} ({number})" for number in count(2))


def _readings(name: str, suffix: str, members: list[Run]) -> list[Line]:
    """The curve of some runs, and one for each change of their encoding after training."""
    changes = {_text(row): row for run in members for row in run.rows}
    made = []
    for text, example in sorted(changes.items()):
        changed = example.get("changed") or {}
        of_run = {run.path: tuple(row for row in run.rows if _text(row) == text) for run in members}
        runs = tuple(run for run in members if of_run[run.path])
        label = f"{name} {suffix}".rstrip()
        if changed:
            label = str(example["encoding"]) + (f" (trained: {suffix})" if suffix else "")
        made.append(Line(printable(label), changed, runs, tuple(of_run[run.path] for run in runs)))
    return made


def _text(row: Row) -> str:
    return json.dumps(row.get("changed") or {}, sort_keys=True)


def _suffixes(known: list[dict[Key, Any]]) -> list[str]:
    """What tells encodings of one name apart: all that differs of the encoding, else as little as will do."""
    apart = differing([(str(index), one) for index, one in enumerate(known)])
    differ = sorted(one.key for one in apart)
    keys = [key for key in differ if is_of_the_encoding(key)]
    for key in (key for key in differ if not is_of_the_encoding(key)):
        if _kinds(known, [*keys, key]) > _kinds(known, keys):
            keys.append(key)
    return [" ".join(_part(one, key) for key in keys if key in one) for one in known]


def _kinds(known: list[dict[Key, Any]], keys: list[Key]) -> int:
    return len({tuple(_part(one, key) if key in one else None for key in keys) for one in known})


def _part(known: dict[Key, Any], key: Key) -> str:
    # In full: two values that differ in their last digit are two curves.
    return f"{key[1].removeprefix(ENCODING + '.')}={spoken(known[key], limit=sys.maxsize)}"
