"""Accuracy by length, for tasks with an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from zoo.data.source import DataSource
from zoo.errors import InputError
from zoo.evaluation.interval import interval_of_rate
from zoo.evaluation.measurement import Units
from zoo.evaluation.protocols.protocol import (
    Execution,
    LengthPlan,
    MeasurementPlan,
    Numbers,
    Protocol,
    end_of_encoding,
    make_targets,
    split_among,
)
from zoo.registry import register
from zoo.tasks.task import Task

Batch = dict[str, Tensor]


@register.protocol("accuracy")
class Accuracy(Protocol):
    """The share of right answers to sequences of a length, the same sequences for every model.

    The task defines the measures (`Task.judge`). `evaluate.samples` examples of a split are drawn at each
    length. A row has the mean of each measure with its 95 % interval over examples (Wilson's), and where it
    does not apply to all of them, how many it is of; over none it is None. The examples are held out of
    training unless there are too few; `seen_in_training` is the share, from 0 to 1, that training may have
    seen.
    """

    unit, higher_is_better, needs, split = "examples", True, "examples", "test"
    explanation = "How often the whole answer is right, on the same examples of this length for every model."

    def plan(self, task: Task, source: DataSource, lengths: Sequence[int]) -> list[MeasurementPlan]:
        samples = task.recipe.evaluate.samples
        split, parameters = self.scored_split(task.recipe.evaluate)
        # These determine the examples at each length.
        targets = make_targets((sorted(source.fingerprint.items()), split, samples), samples)
        planned = [
            plan_examples(task, length, partial(source.examples, split, length, samples), _score)
            for length in lengths
        ]
        return [MeasurementPlan(parameters, targets, planned)]


def plan_examples(
    task: Task,
    length: int,
    draw: Callable[[], Dataset],
    score: Callable[[Task, Dataset, int, Execution], Numbers],
) -> LengthPlan:
    """The plan of one length; `draw` makes the examples, and raises InputError where there are none."""
    note = end_of_encoding(task, length)
    if note is None:
        try:
            examples = draw()
        except InputError as error:
            note = str(error)
        else:
            return LengthPlan(length, len(examples) * length, partial(score, task, examples, length))
    return LengthPlan(length, note=note)


def _score(task: Task, examples: Dataset, length: int, execution: Execution) -> Numbers:
    numbers = score_examples(task, examples, length, execution, task.judge)
    return numbers | {"seen_in_training": float(examples.seen_in_training(task.recipe.data.sequence_length))}


def score_examples(
    task: Task, examples: Dataset, length: int, execution: Execution, judge: Callable[[Batch], Batch]
) -> Numbers:
    """Score a model's answers to examples with `judge` (see `Task.judge`)."""
    per_batch = max(1, task.recipe.evaluate.batch_tokens // length)
    starts = range(0, len(examples), per_batch)
    pieces = [range(start, min(start + per_batch, len(examples))) for start in starts]

    def run(piece: range) -> dict[str, np.ndarray]:
        batch = {name: values.to(execution.device) for name, values in examples.batch(piece).items()}
        return {name: values.double().cpu().numpy() for name, values in judge(batch).items()}

    judged = split_among(execution, pieces, lambda piece: len(piece) * length, run)
    numbers: Numbers = {"examples": len(examples), "tokens": len(examples) * length}
    for measure in judged[0]:
        numbers |= _means(measure, [piece[measure] for piece in judged])
    return numbers


def _means(measure: str, pieces: Iterable[np.ndarray]) -> Numbers:
    """A measure's mean and interval over the examples that it applies to, and how many they are; of the
    accuracy also the score of each example."""
    values = np.concatenate(list(pieces))
    applies = values[~np.isnan(values)]
    low, high = interval_of_rate(applies)
    numbers: Numbers = {measure: float(applies.mean()) if len(applies) else None}
    numbers |= {f"{measure}_low": low, f"{measure}_high": high}
    # `accuracy_within` and `value_accuracy_within` are of the same `examples_within`.
    kind = measure.partition("accuracy")[2]
    numbers |= {f"examples{kind}": len(applies)} if kind else {}
    return numbers | ({"units": Units.of_examples(values)} if measure == "accuracy" else {})
