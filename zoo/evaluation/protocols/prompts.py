"""Prompts: questions asked of a language model at the end of a text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

from torch import Tensor

from zoo import registry
from zoo.data.blocks import NOT_SCORED
from zoo.data.source import DataSource
from zoo.data.text_questions import TextQuestionsDataset
from zoo.errors import InputError
from zoo.evaluation.measurement import Targets
from zoo.evaluation.protocols.accuracy import score_examples
from zoo.evaluation.protocols.protocol import LengthPlan, MeasurementPlan, Protocol, end_of_encoding
from zoo.recipe.questions import questions_section
from zoo.recipe.sections import construct
from zoo.registry import register
from zoo.tasks.answering import judge
from zoo.tasks.task import Task

SPLIT = "test"


@register.protocol("prompts")
class Prompts(Protocol):
    """How often a language model goes on with the right answer after a text that ends in a question.

    The questions are those of `evaluate.questions`, each a measurement of its own: `evaluate.samples` of them
    at each length, in the test split of the run's own corpus and in the tokens of its own tokenizer: so can
    be asked any model that was trained on text alone, by whomever. `accuracy` is the share of answers that
    greedy decoding writes token by token, `token_accuracy` that of their tokens, each after the true ones
    before it.

    Source: the tasks of RULER (Hsieh et al. 2024, arXiv:2404.06654). There an answer is right by the numbers
    or words that it names, in any order; here it is right as written.
    """

    unit, higher_is_better = "examples", True
    explanation = "How often what the model writes after a text and a question is the answer, word for word."

    def plan(self, task: Task, source: DataSource, lengths: Sequence[int]) -> list[MeasurementPlan]:
        return [_plan(task, source, lengths, spec) for spec in task.recipe.evaluate.questions]


def _plan(task: Task, source: DataSource, lengths: Sequence[int], spec: object) -> MeasurementPlan:
    section, samples = questions_section(spec), task.recipe.evaluate.samples
    dataset: TextQuestionsDataset = construct(registry.datasets, section.name, section)
    asked = {"name": dataset.name, **dataset.own_options()}
    named = repr((sorted(source.fingerprint.items()), SPLIT, samples, asked, dataset.format))
    targets = Targets(digest=hashlib.sha256(named.encode()).hexdigest()[:12], count=samples)
    planned = [_at(task, source, dataset, length, samples) for length in lengths]
    return MeasurementPlan({"questions": asked}, targets, planned)


def _at(
    task: Task, source: DataSource, dataset: TextQuestionsDataset, length: int, samples: int
) -> LengthPlan:
    note = end_of_encoding(task, length)
    if note is None:
        try:
            stream = source.stream(SPLIT)
            examples = dataset.examples(stream, source.tokenizer, SPLIT, length, samples, seed=0)
        except InputError as error:
            note = str(error)
        else:
            score = partial(score_examples, task, examples, length, partial(_judge, task))
            return LengthPlan(length, samples * length, score)
    return LengthPlan(length, note=note)


def _judge(task: Task, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    targets = batch["targets"]
    return judge(task.model(batch["tokens"], wanted=targets != NOT_SCORED), targets)
