"""The laws of protocols, tried on a model with known probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from zoo.contract.dataset_laws import recipe_with
from zoo.contract.law import Law, Outcome, Trial, failed, law, passed
from zoo.data import open_data
from zoo.evaluation.measure import measure
from zoo.evaluation.measurement import Measurement, merged
from zoo.registry import Description
from zoo.runs.load import LoadedRun
from zoo.tasks import build_task

LENGTHS = [17, 33]
TEXT = {"name": "sample", "documents": 12, "words": 200, "vocab_size": 300}
EXAMPLES = {"name": "reverse"}
TIMED = {"tokens_per_second", "peak_memory_mb", "machine"}
LAWS: list[Law] = []
protocol_law: Callable[..., Callable[[Trial], Trial]] = partial(law, needs=(), laws=LAWS)


class ProtocolSubject:
    """A protocol with a model for which every token has the same probability: it has no weights.

    `cache` is a folder for tokens.
    """

    def __init__(self, description: Description, options: dict[str, Any], cache: Path):
        self.name, self.plugins = description.name, [description]
        data = {**TEXT, "cache": str(cache)} if description.needs == "text" else EXAMPLES
        sizes = {"lengths": LENGTHS, "max_tokens": 1024, "samples": 64}
        recipe = recipe_with(
            {**data, "sequence_length": 17, "batch_size": 4},
            evaluate={"protocols": [self.name], **sizes, **options},
        )
        self.source = open_data(recipe)
        self.task = build_task(recipe, self.source.vocab_size)
        self.task.card = {"steps": 0}
        with torch.no_grad():
            for parameter in self.task.model.parameters():
                parameter.zero_()

    def __str__(self) -> str:
        return self.name

    def measured(self, lengths: list[int] = LENGTHS) -> list[Measurement]:
        run = LoadedRun(Path(), Path("last.ckpt"), Path(), self.task)
        return merged(measure(run, self.source, lengths))

    def rows(self) -> list[dict[str, Any]]:
        return [row.model_dump(exclude=TIMED) for one in self.measured() for row in one.rows]


@protocol_law(
    "a model with known probabilities gets its exact loss",
    "Where every token is as likely, the loss is the logarithm of the vocabulary's size, and an accuracy is "
    "that of a guess.",
)
def exact(subject: ProtocolSubject) -> Iterator[Outcome]:
    task, source = subject.task, subject.source
    rows = [row for row in subject.rows() if row.get("note") is None]
    if not rows:
        yield failed("no length can be measured")
    for row in rows:
        length = row["length"]
        if row.get("loss_nats") is not None:
            expected, key = math.log(source.vocab_size), "loss_nats"
        elif row.get("accuracy") is not None:
            examples = source.examples("test", length, task.recipe.evaluate.samples)
            judged = task.judge(examples.batch(range(len(examples))))
            expected, key = float(judged["accuracy"].double().mean()), "accuracy"
        else:
            yield failed(f"length {length}: neither loss_nats nor accuracy")
        numbers = f"length {length}: {key} is {row[key]:.6g}, expected {expected:.6g}"
        yield Outcome(math.isclose(row[key], expected, rel_tol=1e-6, abs_tol=1e-9), numbers)


@protocol_law("the same model gets the same numbers again", "Measured twice, all numbers are equal.")
def again(subject: ProtocolSubject) -> Iterator[Outcome]:
    yield passed() if subject.rows() == subject.rows() else failed("the numbers differ")


@protocol_law(
    "targets do not depend on the lengths asked for",
    "The targets at a length are the same when other lengths are measured too.",
)
def same_targets(subject: ProtocolSubject) -> Iterator[Outcome]:
    first, both = ({one.targets for one in subject.measured(some)} for some in (LENGTHS[:1], LENGTHS))
    numbers = "" if first <= both else f"{first} for {LENGTHS[:1]} and {both} for {LENGTHS}"
    yield Outcome(first <= both, numbers)
