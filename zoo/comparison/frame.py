"""Measurements of runs as one tidy table; the curves that runs make together, and the label of each."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.comparison.comparable import (
    differing,
    duplicates,
    facts,
    is_of_the_encoding,
    on_common_targets,
    value_as_text,
)
from zoo.comparison.run_info import RunInfo
from zoo.comparison.runs import evaluate_command, read_runs
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
    "remark", *PER_LENGTH, "machine",
)  # fmt: skip


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
    def of(cls, curves: Mapping[str, Sequence[RunInfo]]) -> Results:
        """The results of the runs of each curve, by its label."""
        import pandas as pd

        rows: list[dict[str, object]] = []
        units: dict[int, Units] = {}
        runs: dict[str, RunInfo] = {}
        for label, run in ((label, run) for label, own in curves.items() for run in own):
            runs[run.path] = run
            for one in run.measurements:
                about = {
                    "run": run.path, "encoding": label, "changed": one.change,
                    "checkpoint": one.checkpoint, "step": one.step, "seed": run.seed,
                    "protocol": one.protocol, "parameters": one.kind[1], "targets": one.targets.digest,
                    "axis": one.axis, "higher_is_better": one.higher_is_better,
                    "explanation": one.explanation, "train_length": one.train_length,
                }  # fmt: skip
                for row in one.rows:
                    numbers = row.model_dump(exclude_unset=True, exclude={"units", "blocks"})
                    named = [name.removesuffix("_low") for name in numbers if name.endswith("_low")]
                    measures = [name for name in dict.fromkeys((*MEASURES, *named)) if name in numbers]
                    for measure in measures or [None]:
                        if own := row.blocks or row.units:
                            units[len(rows)] = own
                        rows.append(about | numbers | {
                            "note": row.note, "remark": row.remark, "measure": measure,
                            "value": numbers.get(measure), "low": numbers.get(f"{measure}_low"),
                            "high": numbers.get(f"{measure}_high"),
                        })  # fmt: skip
        types = dict.fromkeys(("value", "low", "high", *PER_LENGTH), float) | {"machine": object}
        return cls(pd.DataFrame(rows, columns=COLUMNS).astype(types), units, runs)


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
    runs = chosen(read_runs(paths), protocols, lengths)
    return Results.of(series_of(on_common_targets(runs)[0]))


def chosen(
    runs: Sequence[RunInfo], protocols: Sequence[str] | None, lengths: Sequence[int] | None
) -> list[RunInfo]:
    """The runs with only the measurements of these protocols, at these lengths.

    Raises:
        InputError: a length that no run has, or a run without any of these measurements.
    """
    problems, made = [], []
    for run in runs:
        asked = (one for one in run.measurements if not protocols or one.protocol in protocols)
        narrowed = [(one, [row for row in one.rows if not lengths or row.length in lengths]) for one in asked]
        kept = tuple(one.model_copy(update={"rows": rows}) for one, rows in narrowed if rows)
        if not kept:
            faults = [no_protocol(name, run.recipe["task"]["name"]) for name in protocols or ()]
            remedy = evaluate_command([run.path], protocols, lengths)
            why = "; ".join(filter(None, faults)) or f"was not evaluated so; do it with: {remedy}"
            problems.append(Problem(why, where=run.path))
        made.append(replace(run, measurements=kept))
    there = {row.length for run in made for one in run.measurements for row in one.rows}
    if not problems and (absent := [length for length in lengths or () if length not in there]):
        remedy = evaluate_command([run.path for run in runs], protocols, absent)
        named = ", ".join(map(str, absent))
        problems.append(Problem(f"no run was evaluated at {named}; do it with: {remedy}"))
    if problems:
        raise InputError(problems)
    return made


def series_of(runs: Sequence[RunInfo]) -> dict[str, list[RunInfo]]:
    """The curves of runs, by labels: each has the runs that differ in the seed alone, with the measurements
    of one change of the encoding after training, or as trained. Runs that repeat a seed are curves of their
    own."""
    twice = {run.path for group in duplicates(runs) for run in group}
    known = {run.path: facts(run) for run in runs}
    differ = {}
    for name in {run.label for run in runs}:
        own = differing([(run.path, known[run.path]) for run in runs if run.label == name])
        differ[name] = sorted(one.key for one in own if is_of_the_encoding(one.key))
    curves: dict[tuple[str, str, str, str], list[RunInfo]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.seed, run.path)):
        own = known[run.path]
        options = _options({key[1]: own[key] for key in differ[run.label] if key in own})
        same = run.path if run.path in twice else str(sorted(map(str, own.items())))
        for change in dict.fromkeys(one.change for one in run.measurements):
            measured = tuple(one for one in run.measurements if one.change == change)
            curves[run.label, options, same, change].append(replace(run, measurements=measured))
    made = []
    for (name, options, *_), own in curves.items():
        first, label = own[0].measurements[0], f"{name} {options}".rstrip()
        if first.changed:
            label = first.encoding + (f" (trained: {options})" if options else "")
        made.append((label, own))
    return by_label(made)


def by_label(curves: Sequence[tuple[str, list[RunInfo]]]) -> dict[str, list[RunInfo]]:
    """Curves by distinct labels: those with one label by what was changed, and else by their first run."""
    labels, changes = [label for label, _ in curves], [own[0].measurements[0].changed for _, own in curves]
    for texts in (map(_options, changes), (own[0].path for _, own in curves)):
        counts = Counter(labels)
        pairs = zip(labels, texts, strict=True)
        labels = [f"{label} ({text})" if counts[label] > 1 and text else label for label, text in pairs]
    found: dict[str, list[RunInfo]] = {}
    for at in sorted(range(len(labels)), key=lambda at: (len(changes[at]), labels[at])):
        found.setdefault(labels[at], []).extend(curves[at][1])
    return found


def _options(values: Mapping[str, Any]) -> str:
    """Dotted keys with their values: `partial=0.5 base=500.0`."""
    texts = {key.removeprefix(ENCODING + "."): value_as_text(one, sys.maxsize) for key, one in values.items()}
    return " ".join(f"{key}={text}" for key, text in texts.items() if key != "name")
