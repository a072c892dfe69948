"""Windows that overlap, so that every token has a context of nearly the window's length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from zoo.data.source import DataSource
from zoo.errors import InputError, Problem
from zoo.evaluation.protocols.protocol import Measurement, Place, Row, obstacle
from zoo.evaluation.protocols.text import Plan, Text, read, row_of
from zoo.recipe.rules import stride_gap
from zoo.tasks.task import Task


def measurements(task: Task, source: DataSource, lengths: Sequence[int]) -> list[Measurement]:
    """Windows of `length` that begin `evaluate.stride` apart; each scores the tokens that none before it did.

    Every token is scored once and weighs the same: the first window scores all of its tokens, the others
    `stride` each, so that a mean of the windows' means would be another number. Beyond the first window a
    target has at least length - stride + 1 tokens of context, which does away with most of the early-token
    effect: a loss that still falls with the length does so because farther tokens are used. With stride 1
    every token has the full window: evaluation token by token. It hides where in the window a model breaks,
    and costs length / stride times what windows side by side cost.

    Raises:
        InputError: a stride larger than a window, which would leave tokens out.
    """
    asked = task.recipe.evaluate.stride
    must_cover(asked, lengths)
    text = Text(task, source, lengths)
    made = []
    for length in lengths:
        note, parameters = obstacle(task, source, length), {"stride": asked}
        if note:
            made.append(Measurement(length, parameters, note=note))
            continue
        tokens = plan(text.size, length, stride_of(asked, length)).tokens
        measure = partial(_measure, task, text, length, stride_of(asked, length))
        made.append(Measurement(length, parameters, tokens, measure))
    return made


def stride_of(asked: int | float, length: int) -> int:
    """A stride in tokens: a whole number is one already, anything else a fraction of the window."""
    return asked if isinstance(asked, int) else max(1, round(asked * length))


def must_cover(asked: int | float, lengths: Sequence[int]) -> None:
    """Raises InputError where windows would leave gaps."""
    fault = stride_gap(asked, lengths)
    if fault:
        raise InputError(Problem(fault, key="evaluate.stride"))


def plan(size: int, length: int, stride: int) -> Plan:
    """Windows over `size` pairs, all of `length`; the last ends with the text, however little it adds."""
    length = min(length, size)
    stops = np.arange(length, size + stride, stride)
    stops = np.minimum(stops, size)
    return Plan(stops - length, stops, np.concatenate([[0], stops[:-1]]))


def _measure(task: Task, text: Text, length: int, stride: int, place: Place) -> Row:
    losses = read(task, text, plan(text.size, length, stride), place)
    return row_of(text, losses) | {"targets": text.digest(losses.pairs)}
