"""The loss at each position of one long window: where a model breaks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from zoo.data.source import DataSource
from zoo.evaluation.protocols.nonoverlapping import side_by_side
from zoo.evaluation.protocols.protocol import Execution, MeasurementPlan, Numbers, Protocol
from zoo.evaluation.protocols.text import Losses, Text
from zoo.recipe.fields import Positive
from zoo.registry import register
from zoo.tasks.task import Task

FIRST_BIN = 16
"""The first bin holds all targets with at most this many tokens of context."""


@register.protocol("per_position")
class PerPosition(Protocol):
    """One pass in windows of the longest length that can be read; a row for each bin of positions.

    The per-token loss of Lin et al. 2025 (Forgetting Transformer, arXiv:2503.02130), in bins. A row's
    `length` is the bin's upper end in tokens of context, the input token itself included; from 16 on there
    are `evaluate.bins_per_octave` to every doubling. Shows exactly where the loss begins to rise, and costs
    one pass. The bins score different tokens, each a sample of the whole text: a difference between two of
    them that is smaller than their intervals may be the tokens', not the context's. The first bins are the
    early-token effect itself.

    A window that the encoding cannot take, the text cannot fill or the memory cannot hold has a note, and the
    next shorter one is read instead. Runs compare where their windows are the same.

    Args:
        bins_per_octave: bins of positions to every doubling of the context.
    """

    axis = "context"
    first_plan_only = True
    explanation = (
        "One pass in long windows, with the loss by the number of tokens before the target: the position at "
        "which a model breaks. Each bin has other tokens, which may explain small steps between bins."
    )

    def __init__(self, *, bins_per_octave: Positive = 2):
        self.bins_per_octave = bins_per_octave

    def plan(self, task: Task, source: DataSource, lengths: Sequence[int]) -> list[MeasurementPlan]:
        text = Text(task, source, lengths)
        targets = text.targets_at(np.arange(text.size))
        plans = []
        for window in sorted(lengths, reverse=True):
            ends = bin_ends(window, self.bins_per_octave)
            planned = text.length_plan(window, text.size, partial(_score, text, window, ends))
            parameters = {"window": window, "bins_per_octave": self.bins_per_octave}
            parameters |= text.parameters(self)
            plans.append(MeasurementPlan(parameters, targets, [planned]))
        return plans


def bin_ends(window: int, bins_per_octave: int) -> list[int]:
    """Upper ends of the bins, in tokens of context, ascending; the last is the window.

    >>> bin_ends(64, 2), bin_ends(50, 1), bin_ends(8, 2)
    ([16, 23, 32, 45, 64], [16, 32, 50], [8])
    """
    ends, step = [], 0
    while (end := round(FIRST_BIN * 2 ** (step / bins_per_octave))) < window:
        ends.append(end)
        step += 1
    # Many bins to the octave round to the same end while they are short.
    return [*dict.fromkeys(ends), window]


def _score(text: Text, window: int, ends: list[int], execution: Execution) -> list[Numbers]:
    losses = text.read(side_by_side(text.size, text.room(window)), execution)
    bins = np.searchsorted(ends, losses.context)
    found = [(end, losses[bins == number]) for number, end in enumerate(ends)]
    return [_numbers(text, window, end, own) for end, own in found if len(own.pairs)]


def _numbers(text: Text, window: int, end: int, losses: Losses) -> Numbers:
    numbers = text.numbers_of(losses, words=False)  # a bin cuts words anywhere
    own, longest = text.task.model.encoding.max_cached_length, text.longest_sequence(window)
    if own is not None and end <= text.task.recipe.data.sequence_length and own < longest:
        remark = f"the encoding depends on the length: this bin is computed in sequences of up to {longest:,}"
        numbers["remark"] = "; ".join([remark, *([numbers["remark"]] if "remark" in numbers else [])])
    return {"length": end, **numbers}
