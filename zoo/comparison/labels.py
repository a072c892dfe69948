"""Which runs make a curve together, and the label of each curve."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from zoo.comparison.comparable import (
    Key,
    as_text,
    differing,
    duplicates,
    facts,
    is_of_the_encoding,
    value_as_text,
)
from zoo.comparison.run_info import RunInfo
from zoo.recipe.diff import ENCODING


@dataclass(frozen=True)
class Series:
    """Runs that differ in the seed alone, with the measurements of one change of the encoding after training
    (`changed`; empty as trained)."""

    label: str
    runs: tuple[RunInfo, ...]
    changed: dict[str, Any]


def series_of(runs: Sequence[RunInfo]) -> list[Series]:
    """The curves of runs, each with a label of its own. Runs that repeat a seed are curves of their own."""
    twice = {run.path for group in duplicates(runs) for run in group}
    same: dict[str, list[RunInfo]] = defaultdict(list)
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


def _by_change(name: str, suffix: str, members: list[RunInfo]) -> list[Series]:
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
        made.append(Series(label, tuple(run for run in narrowed if run.measurements), example.changed))
    return made


def unique(made: Sequence[Series]) -> list[Series]:
    """Series with distinct labels; the encodings as trained come first and keep theirs."""
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
    """Texts that tell encodings of one name apart: all that differs of the encoding, and of other keys as few
    as suffice."""
    differ = sorted(one.key for one in differing([(str(index), one) for index, one in enumerate(known)]))
    keys = [key for key in differ if is_of_the_encoding(key)]

    def suffixes(keys: list[Key]) -> list[str]:
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
