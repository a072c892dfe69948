"""Accuracy by length, for tasks with an answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from torch.utils.data import Dataset

from zoo.data.source import DataSource
from zoo.errors import InputError
from zoo.evaluation.interval import interval_of_rate
from zoo.evaluation.protocols.protocol import Measurement, Place, Row, obstacle, share
from zoo.evaluation.units import UNITS, example_units
from zoo.tasks.task import Task


def measurements(task: Task, source: DataSource, lengths: Sequence[int]) -> list[Measurement]:
    """How often answers to sequences of a length are right, on the same sequences for every model.

    What is measured is the task's own affair (`Task.judge`). `evaluate.samples` examples of the test split
    are drawn at each length. A row has the mean of each measure with its 95 % interval over examples
    (Wilson's), and where it does not apply to all of them, how many it is of; over none it is None. What is
    scored is held out of training but where there is too little of it; `seen_in_training` is the share, from
    0 to 1, that training may have seen.
    """
    return [_measurement(task, source, length) for length in lengths]


def _measurement(task: Task, source: DataSource, length: int) -> Measurement:
    note = obstacle(task, source, length)
    if note is None:
        try:
            examples = source.examples("test", length, task.recipe.evaluate.samples)
        except InputError as error:
            note = str(error)
        else:
            targets = _digest(source, length, len(examples))
            measure = partial(_measure, task, examples, length, targets)
            return Measurement(length, tokens=len(examples) * length, measure=measure)
    return Measurement(length, note=note)


def _measure(task: Task, examples: Dataset, length: int, targets: str, place: Place) -> Row:
    per_batch = max(1, task.recipe.evaluate.batch_tokens // length)
    starts = range(0, len(examples), per_batch)
    pieces = [range(start, min(start + per_batch, len(examples))) for start in starts]

    def judge(piece: range) -> dict[str, np.ndarray]:
        batch = {name: values.to(place.device) for name, values in examples.batch(piece).items()}
        return {name: values.double().cpu().numpy() for name, values in task.judge(batch).items()}

    judged = share(place, pieces, lambda piece: len(piece) * length, judge)
    row: Row = {"examples": len(examples), "tokens": len(examples) * length}
    row["seen_in_training"] = examples.seen_in_training(task.recipe.data.sequence_length)
    for measure in judged[0]:
        row |= _means(measure, [piece[measure] for piece in judged])
    return row | {"targets": targets}


def _means(measure: str, pieces: Iterable[np.ndarray]) -> Row:
    """A measure's mean and interval over the examples that it applies to, and how many they are; of the
    accuracy also what each example gave."""
    values = np.concatenate(list(pieces))
    applies = values[~np.isnan(values)]
    low, high = interval_of_rate(applies)
    row: Row = {measure: float(applies.mean()) if len(applies) else None}
    row |= {f"{measure}_low": low, f"{measure}_high": high}
    # `accuracy_within` and `value_accuracy_within` are of the same `examples_within`.
    kind = measure.partition("accuracy")[2]
    row |= {f"examples{kind}": len(applies)} if kind else {}
    return row | ({UNITS: example_units(values)} if measure == "accuracy" else {})


def _digest(source: DataSource, length: int, count: int) -> str:
    """Which examples these are, in 12 hex digits, from all that decides them."""
    return hashlib.sha256(repr((source.fingerprint, "test", length, count)).encode()).hexdigest()[:12]
