"""The same targets with more and more context before them: is far context used at all?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from zoo.data.source import DataSource
from zoo.evaluation.protocols.protocol import Measurement, Place, Row, obstacle
from zoo.evaluation.protocols.text import Plan, Text, read, row_of
from zoo.tasks.task import Task


def measurements(task: Task, source: DataSource, lengths: Sequence[int]) -> list[Measurement]:
    """The last tokens of each document, read in windows of `length` tokens that end there.

    Kazemnejad et al. 2023 (arXiv:2305.19466), appendix F. Nothing but the context differs between two
    lengths: what the loss loses is what the farther tokens gave, and there is no early-token effect in it.
    It hides the rest of the text: few targets, all at the ends of long documents.

    The documents are those that begin within the text that the other protocols score; they may end beyond
    it. A document counts with the end token that closes it, and of its tokens the last `evaluate.targets` are
    the targets; no more than the shortest of the lengths, so that every window holds them all. At length L
    the first target has L - targets + 1 tokens of context and the last has L. No window crosses the
    beginning of its document: for the longest of the lengths it needs that and one token more. Shorter
    documents are left out at every length, and counted. Lengths that no document allows have a note; the
    others are scored on the documents that the longest allowed one leaves.
    """
    text = Text(task, source, lengths)
    starts, sizes = _documents(text)
    largest = int(sizes.max(initial=0))
    longest = max((length for length in lengths if length < largest), default=None)
    num_targets = min(task.recipe.evaluate.targets, min(lengths))
    parameters = {"targets": num_targets, "longest": longest}
    kept = np.flatnonzero(sizes > (longest or 0))
    # The last pair of a document predicts its end token.
    stops = (starts + sizes - 1)[kept]
    made = []
    for length in lengths:
        note = obstacle(task, source, length)
        if note is None and (longest is None or length > longest):
            note = (
                f"needs a document of {length + 1} tokens, and the longest of {len(sizes)} has {largest}: "
                f"lengths up to {max(0, largest - 1)} can be scored"
            )
        if note:
            made.append(Measurement(length, parameters, note=note))
            continue
        plan = Plan(stops - length, stops, stops - num_targets)
        measure = partial(_measure, task, text, plan, len(sizes) - len(kept))
        made.append(Measurement(length, parameters, plan.tokens, measure))
    return made


def _documents(text: Text) -> tuple[np.ndarray, np.ndarray]:
    """Where the documents within the scored text begin, and their tokens, the end token included."""
    ends = np.append(text.starts[1:], text.end + 1)
    within = text.starts < text.size
    return text.starts[within], (ends - text.starts)[within]


def _measure(task: Task, text: Text, plan: Plan, left_out: int, place: Place) -> Row:
    losses = read(task, text, plan, place)
    return row_of(text, losses) | {"documents_left_out": left_out, "targets": text.digest(losses.pairs)}
