"""The loss on rare bigrams that repeat, by the distance to their last occurrence: is far context used?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.errors import InputError
from zoo.evaluation.protocols.nonoverlapping import side_by_side
from zoo.evaluation.protocols.per_position import bin_ends
from zoo.evaluation.protocols.protocol import Execution, MeasurementPlan, Numbers, Protocol
from zoo.evaluation.protocols.text import Text
from zoo.recipe.fields import Positive
from zoo.registry import register
from zoo.runs.card import changed_data
from zoo.tasks.task import Task

CHUNK = 2**22
"""Tokens of the training text that are counted at a time."""


@register.protocol("repeats")
class Repeats(Protocol):
    """One pass in windows of the longest length that can be read; a row for each octave of distances.

    Scores the targets whose bigram (previous token, target) occurred earlier in the window and is rare in the
    training text: fewer than `evaluate.rare_below` occurrences. Where documents are separate, the earlier
    occurrence lies in the same document. A model cannot know such a bigram from its weights, but can copy it
    from its context. These are the "AR hits" of Arora et al. 2023 (Zoology, arXiv:2312.04927, section 3),
    here by distance. A row's `length` is the upper end of an octave of distances to the last earlier
    occurrence, in tokens.

    A window that the encoding cannot take, the text cannot fill or the memory cannot hold has a note, and the
    next shorter one is read instead. Runs compare where their windows are the same.

    Args:
        rare_below: a bigram is rare if it occurs fewer times than this in the training text.
    """

    axis = "distance"
    first_plan_only = True
    explanation = (
        "The loss of tokens that complete a rare bigram which occurred earlier in the window, by the "
        "distance to it: whether context so far away is used. Each octave of distances has other tokens."
    )

    def __init__(self, *, rare_below: Positive = 10):
        self.rare_below = rare_below

    def plan(self, task: Task, source: DataSource, lengths: Sequence[int]) -> list[MeasurementPlan]:
        text = Text(task, source, lengths)
        bigrams = text.inputs(0, text.size) * source.vocab_size + text.inputs(1, text.size + 1)
        rare = _occurrences(bigrams, _trained_on(task, source)) < self.rare_below
        rare &= text.targets(0, text.size) >= 0
        plans = []
        for window in sorted(lengths, reverse=True):
            groups = np.arange(text.size) // max(1, text.room(window))
            if source.separate:
                groups = groups * len(text.starts) + text.documents(np.arange(text.size))
            distances = repeat_distances(bigrams, groups)
            chosen = np.flatnonzero(rare & (distances > 0))
            note = None if len(chosen) else "no rare bigram repeats within a window"
            score = partial(_score, text, window, chosen, distances[chosen])
            parameters = {"window": window, "rare_below": self.rare_below}
            parameters |= text.parameters(self)
            length_plan = text.length_plan(window, text.size, score, note)
            plans.append(MeasurementPlan(parameters, text.targets_at(chosen), [length_plan]))
        return plans


def repeat_distances(bigrams: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The distance of each bigram to its last earlier occurrence in its group, 0 where there is none.

    Args:
        bigrams: a number for each pair of an input token and its target, int64 [N].
        groups: the window of each pair, or its document in that window; each is consecutive, int64 [N].

    >>> repeat_distances(np.array([7, 8, 7, 7, 7, 8]), np.array([0, 0, 0, 0, 1, 1])).tolist()
    [0, 0, 2, 1, 0, 0]
    """
    order = np.lexsort((bigrams, groups))  # stable: equal bigrams of a group stay in the text's order
    same = (np.diff(bigrams[order]) == 0) & (np.diff(groups[order]) == 0)
    distances = np.zeros(len(bigrams), np.int64)
    distances[order[1:][same]] = np.diff(order)[same]
    return distances


def _trained_on(task: Task, source: DataSource) -> DataSource:
    """The data of the run, also where another corpus is scored. Raises InputError where they are missing."""
    try:
        if source.label is not None:
            data = task.recipe.data
            data = data.model_copy(update={"tokenizer": data.tokenizer and source.recipe.data.tokenizer})
            evaluate = task.recipe.evaluate.model_copy(update={"split": None})
            source = open_data(task.recipe.model_copy(update={"data": data, "evaluate": evaluate}))
            if differing := changed_data(task.card, source):
                raise InputError("; ".join(differing))
        if not len(source.stream("train")):
            raise InputError(f"{task.recipe.data.name!r} has no training split")
    except InputError as error:
        message = f"repeats counts bigrams in the training text of the run: {error}; leave out this protocol"
        raise InputError(message) from error
    return source


def _occurrences(bigrams: np.ndarray, source: DataSource) -> np.ndarray:
    """The number of times that each bigram occurs in the training text, int64 [N]."""
    known, places = np.unique(bigrams, return_inverse=True)
    counts = np.zeros(len(known), np.int64)
    stream = source.stream("train")
    for start in range(0, len(stream) - 1, CHUNK):
        tokens = stream[start : start + CHUNK + 1].astype(np.int64)
        found = tokens[:-1] * source.vocab_size + tokens[1:]
        at = np.minimum(np.searchsorted(known, found), len(known) - 1)
        counts += np.bincount(at[known[at] == found], minlength=len(known))
    return counts[places]


def _score(
    text: Text, window: int, chosen: np.ndarray, distances: np.ndarray, execution: Execution
) -> list[Numbers]:
    losses = text.read(side_by_side(text.size, text.room(window)), execution)
    losses = losses[np.searchsorted(losses.pairs, chosen)]
    ends = bin_ends(window, 1)
    bins = np.searchsorted(ends, distances)
    return [
        {"length": ends[number], **text.numbers_of(losses[bins == number], words=False)}
        for number in np.unique(bins).tolist()
    ]
