"""The loss at each position of one long window: where a model breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from zoo.data.source import DataSource
from zoo.evaluation.protocols.nonoverlapping import plan
from zoo.evaluation.protocols.protocol import Measurement, Place, Row, obstacle
from zoo.evaluation.protocols.text import Text, read, row_of
from zoo.tasks.task import Task

FIRST_BIN = 16
"""The first bin holds all targets with at most this many tokens of context."""


def measurements(task: Task, source: DataSource, lengths: Sequence[int]) -> list[Measurement]:
    """One pass in windows of the longest length that can be read; a row for each bin of positions.

    The per-token loss of Lin et al. 2025 (Forgetting Transformer, arXiv:2503.02130), in bins. A row's
    `length` is the bin's upper end in tokens of context, the input token itself included; from 16 on there
    are `evaluate.bins_per_octave` to every doubling. Shows exactly where the loss begins to rise, and costs
    one pass. The bins score different tokens, each a sample of the whole text: a difference between two of
    them that is smaller than their intervals may be the tokens', not the context's. The first bins are the
    early-token effect itself.

    A window that the encoding cannot take, the text cannot fill or the memory cannot hold has a note, and the
    next shorter one is read instead. Runs compare where their windows are the same.
    """
    text, bins_per_octave = Text(task, source, lengths), task.recipe.evaluate.bins_per_octave
    made: Measurement | None = None
    for window in sorted(lengths):
        parameters = {"window": window, "bins_per_octave": bins_per_octave}
        note = obstacle(task, source, window)
        this = Measurement(window, parameters, note=note, instead=made)
        if note is None:
            ends = bin_ends(window, bins_per_octave)
            this = replace(this, tokens=text.size, measure=partial(_measure, task, text, window, ends))
        made = this
    return [made] if made else []


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


def _measure(task: Task, text: Text, window: int, ends: list[int], place: Place) -> list[Row]:
    losses = read(task, text, plan(text.size, window), place)
    digest = text.digest(losses.pairs, "window", window)
    bins = np.searchsorted(ends, losses.context)
    return [
        {"length": end, **row_of(text, losses[bins == number]), "targets": digest}
        for number, end in enumerate(ends)
        if (bins == number).any()
    ]
