"""Measurements of runs as one tidy table; the curves that runs make together, and the label of each."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.comparison.comparable import (
    Key,
    as_text,
    differing,
    duplicates,
    facts,
    is_of_the_encoding,
    on_common_targets,
    value_as_text,
)
from zoo.comparison.runs import RunInfo, evaluate_command, read_runs
from zoo.errors import InputError, Problem
from zoo.evaluation.measurement import Units
from zoo.recipe.diff import ENCODING
from zoo.recipe.rules import no_protocol

if TYPE_CHECKING:
    import pandas as pd

MEASURES = (
    "accuracy", "token_accuracy", "value_accuracy", "accuracy_within", "accuracy_beyond",
    "bits_per_byte", "loss_nats", "perplexity", "word_perplexity",
)  # fmt: skip
KIND = ["protocol", "parameters", "targets"]
"""Columns of rows that compare."""
COUNTS = ("documents", "examples", "tokens")
PER_LENGTH = ("tokens_per_second", "peak_memory_mb", "seen_in_training", *COUNTS, "documents_left_out")
COLUMNS = (
    "run", "encoding", "changed", "checkpoint", "step", "seed", "protocol", "parameters", "targets", "axis",
    "higher_is_better", "explanation", "length", "train_length", "measure", "value", "low", "high", "note",
    "remark", *PER_LENGTH,
)  # fmt: skip


@dataclass(frozen=True)
class Series:
    """Runs that differ in the seed alone, with the measurements of one change of the encoding after training
    (`changed`; empty as trained)."""

    label: str
    runs: tuple[RunInfo, ...]
    changed: dict[str, Any]


@dataclass(frozen=True)
class Results:
    """Measurements of runs.

    Attributes:
        rows: a row for each run, protocol, length and measure, with `COLUMNS`. `encoding` is the label of a
            curve: runs with one label differ in the seed alone. `parameters` and `changed` are JSON,
            `targets` a digest, lengths are in tokens. `value` is NaN where it is not finite, and where `note`
            says why there is none. `low` and `high` end its 95 % interval.
        units: for a row, by its index, the scores of each document, block or example.
        runs: the runs by path.
    """

    rows: pd.DataFrame
    units: Mapping[int, Units]
    runs: Mapping[str, RunInfo]

    @classmethod
    def of(cls, series: Iterable[Series]) -> Results:
        """The results of curves."""
        rows: list[dict[str, object]] = []
        units: dict[int, Units] = {}
        runs: dict[str, RunInfo] = {}
        for curve in series:
            for run in curve.runs:
                others = runs[run.path].measurements if run.path in runs else ()
                runs[run.path] = replace(run, measurements=(*others, *run.measurements))
                for one in run.measurements:
                    about = {
                        "run": run.path, "encoding": curve.label,
                        "changed": json.dumps(one.changed, sort_keys=True),
                        "checkpoint": one.checkpoint, "step": one.step, "seed": run.seed,
                        "protocol": one.protocol, "parameters": one.kind[1], "targets": one.targets.digest,
                        "axis": one.axis, "higher_is_better": one.higher_is_better,
                        "explanation": one.explanation, "train_length": one.train_length,
                    }  # fmt: skip
                    for row in one.rows:
                        numbers = row.model_dump(exclude_unset=True, exclude={"units", "blocks"})
                        own = {name: numbers[name] for name in PER_LENGTH if name in numbers}
                        about |= {"length": row.length, "note": row.note, "remark": row.remark}
                        for measure in _measures(numbers) or [None]:
                            if row.units or row.blocks:
                                units[len(rows)] = row.blocks or row.units
                            rows.append({
                                **about, **own, "measure": measure, "value": numbers.get(measure),
                                "low": numbers.get(f"{measure}_low"), "high": numbers.get(f"{measure}_high"),
                            })  # fmt: skip
        frame = table_of(rows, COLUMNS)
        numbers = ["value", "low", "high", *PER_LENGTH]
        frame[numbers] = frame[numbers].astype(float)
        return cls(frame, units, runs)


def table_of(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> pd.DataFrame:
    """A DataFrame whose texts may be names of folders that are not UTF-8, which Arrow does not hold."""
    import pandas as pd

    with pd.option_context("mode.string_storage", "python"):
        return pd.DataFrame(rows, columns=columns)


def _measures(numbers: Mapping[str, object]) -> list[str]:
    """The measures of a row: the known ones, and those of a plugin, which have an interval."""
    named = [name.removesuffix("_low") for name in numbers if name.endswith("_low")]
    return [name for name in dict.fromkeys((*MEASURES, *named)) if name in numbers]


def load(
    paths: Sequence[Path], protocols: Sequence[str] | None = None, lengths: Sequence[int] | None = None
) -> Results:
    """Read the measurements of the last checkpoints of runs.

    Args:
        paths: run folders.
        protocols, lengths: by default all that were measured.

    Raises:
        InputError: runs that cannot be read, or that were not evaluated so.
    """
    runs = chosen(read_runs(paths, wanted=(protocols, lengths)), protocols, lengths)
    return Results.of(series_of(on_common_targets(runs)[0]))


def chosen(
    runs: Sequence[RunInfo], protocols: Sequence[str] | None, lengths: Sequence[int] | None
) -> list[RunInfo]:
    """The runs with only the measurements of these protocols, at these lengths.

    Raises:
        InputError: a protocol or a length that no run has, or a run that has none of them.
    """
    measured = [one for run in runs for one in run.measurements]
    for word, asked, there in (
        ("by", protocols, {one.protocol for one in measured}),
        ("at", lengths, {row.length for one in measured for row in one.rows}),
    ):
        absent = ", ".join(str(one) for one in asked or () if one not in there)
        able = [run for run in runs if not _faults(run, protocols)]
        if absent and able:
            only = ", ".join(map(str, sorted(there)))
            remedy = evaluate_command(able, protocols, lengths)
            raise InputError(
                f"no run was evaluated {word} {absent}, only {word} {only}; do it with: {remedy}"
            )
    problems, chosen_runs = [], []
    for run in runs:
        kept = []
        for one in run.measurements:
            rows = [row for row in one.rows if not lengths or row.length in lengths]
            if rows and (not protocols or one.protocol in protocols):
                kept.append(one.model_copy(update={"rows": rows}))
        if not kept:
            remedy = evaluate_command([run], protocols, lengths)
            why = "; ".join(_faults(run, protocols)) or f"was not evaluated so; do it with: {remedy}"
            problems.append(Problem(why, where=run.path))
        chosen_runs.append(replace(run, measurements=tuple(kept)))
    if problems:
        raise InputError(problems)
    return chosen_runs


def _faults(run: RunInfo, protocols: Sequence[str] | None) -> list[str]:
    """Why a run's task does not have these protocols."""
    task = run.recipe["task"]["name"]
    return [fault for name in protocols or () if (fault := no_protocol(name, task))]


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
