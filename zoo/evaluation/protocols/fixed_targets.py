"""The same targets with more and more context before them: is far context used at all?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from zoo.data.source import DataSource
from zoo.evaluation.protocols.protocol import Execution, MeasurementPlan, Numbers, Protocol
from zoo.evaluation.protocols.text import Text, Windows
from zoo.recipe.fields import Positive
from zoo.registry import register
from zoo.tasks.task import Task


@register.protocol("fixed_targets")
class FixedTargets(Protocol):
    """The last tokens of each document, read in windows of `length` tokens that end there.

    Kazemnejad et al. 2023 (arXiv:2305.19466), appendix F. Only the context differs between two lengths, so a
    lower loss comes from the tokens that a longer window adds. For the first targets of a short window these
    are near ones too. It hides the rest of the text: few targets, all at the ends of long documents.

    Documents are used if they begin within the text that the other protocols score; they may end beyond it.
    The targets are the last `evaluate.targets` tokens of a document, its end token included, and at most the
    shortest of `evaluate.lengths`. At length L the first target has L - targets + 1 tokens of context and the
    last has L. No window crosses the beginning of its document: the document needs one token more than the
    longest of `evaluate.lengths` that any document allows. Shorter documents are left out at every length,
    and counted.

    Args:
        targets: tokens scored at the end of each document; at most the shortest length.
    """

    explanation = (
        "The last tokens of each document are scored with growing context from the document: only the "
        "context differs between two lengths, so a lower loss comes from the tokens that a longer one adds."
    )

    def __init__(self, *, targets: Positive = 200):
        self.targets = targets

    def plan(self, task: Task, source: DataSource, lengths: Sequence[int]) -> list[MeasurementPlan]:
        config, text = task.recipe.evaluate, Text(task, source, lengths)
        chosen = config.lengths or lengths
        starts, sizes = _documents(text)
        largest = int(sizes.max(initial=0))
        # Of the recipe's lengths: the targets do not depend on the lengths asked for.
        longest = max((length for length in chosen if length < largest), default=None)
        num_targets = min(self.targets, max(1, text.room(min(chosen))))
        kept = np.flatnonzero(sizes > (longest or largest))
        # The last pair of a document predicts its end token.
        stops = (starts + sizes - 1)[kept]
        pairs = (stops[:, None] - np.arange(num_targets, 0, -1)).ravel()

        def obstacle(length: int) -> str | None:
            if length >= largest:
                return (
                    f"needs a document of {length + 1} tokens, and the longest of {len(sizes)} has "
                    f"{largest}: lengths up to {max(0, largest - 1)} can be scored"
                )
            if length > (longest or 0):
                return f"documents are chosen for evaluate.lengths, up to {longest}; add {length} to them"
            if (room := text.room(length)) < num_targets:
                return f"has no room for {num_targets} targets; lower evaluate.targets to {room}"
            return None

        def score(length: int, execution: Execution) -> Numbers:
            losses = text.read(Windows(stops - text.room(length), stops, stops - num_targets), execution)
            return text.numbers_of(losses) | {"documents_left_out": len(sizes) - len(kept)}

        planned = [
            text.length_plan(length, len(kept) * text.room(length), partial(score, length), obstacle(length))
            for length in lengths
        ]
        parameters = {"targets": num_targets, "longest": longest, **text.parameters(self)}
        return [MeasurementPlan(parameters, text.targets_at(pairs), planned)]


def _documents(text: Text) -> tuple[np.ndarray, np.ndarray]:
    """The first tokens of the documents within the scored text, and their sizes, the end token included."""
    ends = np.append(text.starts[1:], text.end + 1)
    within = text.starts < text.size
    return text.starts[within], (ends - text.starts)[within]
