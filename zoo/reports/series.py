"""Which runs make a curve together, and what each curve is called."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from zoo.errors import printable
from zoo.recipe.diff import ENCODING
from zoo.reports.comparable import (
    Key,
    as_text,
    differing,
    duplicates,
    facts,
    is_of_the_encoding,
    value_as_text,
)
from zoo.reports.compared_run import Row, Run


@dataclass(frozen=True)
class Series:
    """Runs that differ in nothing but the seed, each with its measurements of one way of reading it."""

    label: str
    runs: tuple[Run, ...]
    changed: dict[str, Any]
    """What was changed of the encoding after training; empty for the encodings as trained."""

    def rows_of(self, kind: tuple[str, str, str]) -> list[Row]:
        """The rows of one kind of measurement, of all runs."""
        return [row for run in self.runs for row in run.of(kind)]


def series_of(runs: Sequence[Run]) -> list[Series]:
    """The curves of some runs, by label; no two have the same one.

    Runs are of one curve when all that tells runs apart agrees but the seed. Where a seed is there twice,
    each of its runs is a curve of its own.
    """
    twice = {run.path for group in duplicates(runs) for run in group}
    same: dict[str, list[Run]] = defaultdict(list)
    known: dict[str, dict[Key, Any]] = {}
    for run in sorted(runs, key=lambda run: (run.seed, run.path)):
        own = facts(run) | ({("run", "run"): run.path} if run.path in twice else {})
        same[as_text(own)].append(run)
        known[as_text(own)] = own
    named: dict[str, list[str]] = defaultdict(list)
    for text in sorted(same):
        named[same[text][0].label].append(text)
    made: list[Series] = []
    for name, alike in named.items():
        for text, suffix in zip(alike, _suffixes([known[text] for text in alike]), strict=True):
            made += _by_change(name, suffix, same[text])
    return unique(made)


def _by_change(name: str, suffix: str, members: list[Run]) -> list[Series]:
    """The curve of some runs, and one for each change of their encoding after training."""
    changes = {json.dumps(one.changed, sort_keys=True): one for run in members for one in run.measurements}
    made = []
    for _, example in sorted(changes.items()):
        label = f"{name} {suffix}".rstrip()
        if example.changed:
            label = example.encoding + (f" (trained: {suffix})" if suffix else "")
        narrowed = [
            replace(
                run, measurements=tuple(one for one in run.measurements if one.changed == example.changed)
            )
            for run in members
        ]
        runs = tuple(run for run in narrowed if run.measurements)
        made.append(Series(printable(label), runs, example.changed))
    return made


def unique(made: Sequence[Series]) -> list[Series]:
    """Series with labels of which no two are the same."""
    # As trained first, and what was changed least: it is the others that are told apart from it.
    ordered = sorted(made, key=lambda one: (len(one.changed), one.label, [run.path for run in one.runs]))
    taken: dict[str, Series] = {}
    for one in ordered:
        names = [one.label]
        if one.label in taken and taken[one.label].runs[0].label != one.runs[0].label:
            names.append(f"{one.label} (trained: {one.runs[0].label})")
        changed = [
            f"{key.removeprefix(ENCODING + '.')}={value_as_text(value)}"
            for key, value in one.changed.items()
            if key != f"{ENCODING}.name"
        ]
        names += [f"{one.label} ({' '.join(changed)})"] if changed else []
        names += [f"{one.label} ({number})" for number in range(2, len(ordered) + 1)]
        label = next(name for name in names if name not in taken)
        taken[label] = replace(one, label=label)
    return [*taken.values()]


def _suffixes(known: list[dict[Key, Any]]) -> list[str]:
    """What tells encodings of one name apart: all that differs of the encoding, else as little as will do."""
    differ = sorted(one.key for one in differing([(str(index), one) for index, one in enumerate(known)]))
    keys = [key for key in differ if is_of_the_encoding(key)]

    def suffixes(keys: list[Key]) -> list[str]:
        # In full: two values that differ in their last digit are two curves.
        return [
            " ".join(
                f"{key[1].removeprefix(ENCODING + '.')}={value_as_text(one[key], limit=sys.maxsize)}"
                for key in keys
                if key in one
            )
            for one in known
        ]

    for key in differ:
        if key not in keys and len(set(suffixes([*keys, key]))) > len(set(suffixes(keys))):
            keys.append(key)
    return suffixes(keys)
