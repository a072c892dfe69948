"""Windows side by side: what most papers report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from zoo.data.source import DataSource
from zoo.evaluation.protocols.protocol import Measurement, Place, Row, obstacle
from zoo.evaluation.protocols.text import Plan, Text, read, row_of
from zoo.tasks.task import Task


def measurements(task: Task, source: DataSource, lengths: Sequence[int]) -> list[Measurement]:
    """The validation text in windows of `length` side by side, every token scored once.

    Shows what a model costs when a long text is cut into windows of this length. Hides where in the window
    the loss comes from, and above all the early-token effect (Press et al. 2022, arXiv:2108.12409, appendix
    B): tokens near a window's beginning have little context, and longer windows leave fewer of them. The loss
    of a model that uses no more context than it was trained on still falls with the length.

    For masked language modelling the targets are the hidden tokens, hidden at the same places whatever the
    length; they are no likelihood, and are not told per byte or word.
    """
    text = Text(task, source, lengths)
    made = []
    for length in lengths:
        note = obstacle(task, source, length)
        measure = partial(_measure, task, text, length)
        made.append(Measurement(length, note=note) if note else Measurement(length, {}, text.size, measure))
    return made


def plan(size: int, length: int) -> Plan:
    """Windows that cover `size` pairs; the last is shorter where the length does not divide them."""
    starts = np.arange(0, size, length)
    return Plan(starts, np.minimum(starts + length, size), starts)


def _measure(task: Task, text: Text, length: int, place: Place) -> Row:
    losses = read(task, text, plan(text.size, length), place)
    return row_of(text, losses) | {"targets": text.digest(losses.pairs)}
