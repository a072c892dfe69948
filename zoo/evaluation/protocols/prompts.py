"""Prompts: questions asked of a language model at the end of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import BeforeValidator, Field
from torch import Tensor
from torch.utils.data import Dataset

from zoo import registry
from zoo.data.blocks import NOT_SCORED
from zoo.data.questions.text import AskedInText, TextQuestionsDataset, questions_section
from zoo.data.source import DataSource
from zoo.evaluation.measurement import Measurement
from zoo.evaluation.protocols.accuracy import plan_examples, score_examples
from zoo.evaluation.protocols.protocol import MeasurementPlan, Protocol, make_targets
from zoo.recipe.fields import Flag
from zoo.recipe.sections import construct
from zoo.registry import register
from zoo.tasks.answering import judge
from zoo.tasks.language_modelling import start_token
from zoo.tasks.task import Task


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str | dict) else value


@register.protocol("prompts")
class Prompts(Protocol):
    """The share of questions at the end of a text that a language model answers correctly.

    Each entry of `evaluate.questions` is a measurement of its own: `evaluate.samples` prompts at each length,
    made of the test split of the run's own corpus with its own tokenizer. The protocol needs a model that was
    trained on text only. `accuracy` is the share of answers that greedy decoding produces, `token_accuracy`
    the share of their tokens, each after the true ones before it.

    Source: the tasks of RULER (Hsieh et al. 2024, arXiv:2404.06654). RULER accepts an answer that contains
    the numbers or words in any order; here the answer has to be equal.

    Args:
        questions: names of datasets whose questions are asked in a text or of tasks of RULER, or mappings of
            the name of a dataset and its options.
        keep_prompts: store prompts, answers and scores as JSON Lines beside each measurement.
    """

    unit, higher_is_better, split = "examples", True, "test"
    explanation = "How often the model's answer to a question about the text before it is exactly right."

    def __init__(
        self,
        *,
        questions: Annotated[tuple[AskedInText, ...], Field(min_length=1), BeforeValidator(_several)] = (
            "needle",
            "variable_tracking",
            "common_words",
        ),
        keep_prompts: Flag = False,
    ):
        self.questions, self.keep_prompts = questions, keep_prompts

    def plan(self, task: Task, source: DataSource, lengths: Sequence[int]) -> list[MeasurementPlan]:
        split, recorded = self.scored_split(task.recipe.evaluate)
        return [_plan(task, source, lengths, split, recorded, spec) for spec in self.questions]

    def lines(self, task: Task, source: DataSource, one: Measurement) -> Iterator[dict[str, Any]]:
        """The prompts of a measurement, with the keys of RULER's files and the score of the model."""
        [row], section = one.rows, questions_section(one.parameters["questions"])
        if not self.keep_prompts or row.units is None:
            return
        dataset, decode = construct(registry.datasets, section.name, section), source.tokenizer.decode
        room = row.length - (one.targets.start_token is not None)
        examples = _draw(dataset, source, one.parameters.get("split", self.split), room, row.examples)
        for index, score in enumerate(row.units.scores):
            prompt, answer = examples.example(index)
            outputs, length = decode(answer).strip().split(", "), len(prompt) + len(answer)
            yield {
                "index": index, "input": decode(prompt), "outputs": outputs, "length": length, "score": score,
            }  # fmt: skip


def _plan(
    task: Task, source: DataSource, lengths: Sequence[int], split: str, recorded: dict[str, str], spec: object
) -> MeasurementPlan:
    section, samples = questions_section(spec), task.recipe.evaluate.samples
    dataset: TextQuestionsDataset = construct(registry.datasets, section.name, section)
    asked = {"name": dataset.name, **dataset.own_options()}
    named = sorted(source.fingerprint.items()), split, samples, asked, dataset.format
    start = start_token(task, source.tokenizer)
    targets = make_targets(named, samples, start and start.text)
    score = partial(score_examples, judge=partial(_judge, task, start and start.id))
    planned = []
    for length in lengths:
        room = length - (start is not None)
        draw = partial(_draw, dataset, source, split, room, samples)
        planned.append(plan_examples(task, length, draw, score))
    return MeasurementPlan({"questions": asked, **recorded}, targets, planned)


def _draw(dataset: TextQuestionsDataset, source: DataSource, split: str, room: int, samples: int) -> Dataset:
    return dataset.examples(source.stream(split), source.tokenizer, split, room, samples, seed=0)


def _judge(task: Task, start: int | None, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    tokens, targets = batch["tokens"], batch["targets"]
    if start is not None:
        # A prompt that already has the start token is padded instead.
        begun = tokens[:, :1] == start
        tokens, targets = (
            torch.where(begun, F.pad(one, (0, 1), value=fill), F.pad(one, (1, 0), value=fill))
            for one, fill in ((tokens, start), (targets, NOT_SCORED))
        )
    return judge(task.model(tokens, wanted=targets != NOT_SCORED), targets)
