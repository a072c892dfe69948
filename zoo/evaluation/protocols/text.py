"""What all protocols for text share: the text, a plan of what is read of it, and from losses to a row.

A protocol says which windows of the text are read and which targets in each are scored (`Plan`). The rest is
the same for all: windows of equal length are read in batches, and the losses are told per token, per byte and
per word, with an interval over documents. Windows run on across documents as they do in training (but for
`fixed_targets`); the unit of the interval is the document, since tokens of one are alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from zoo.data.source import DataSource
from zoo.evaluation.interval import UNKNOWN, interval_of_ratio
from zoo.evaluation.protocols.protocol import Place, Row, share
from zoo.evaluation.units import UNITS, document_units
from zoo.tasks.language_modelling import token_losses
from zoo.tasks.metrics import perplexity
from zoo.tasks.task import Task

LOGIT_TOKENS = 4096
"""Logits over the vocabulary are made for no more tokens than this at a time."""


class Text:
    """The validation split as pairs: pair i is the input token i, and the target to be predicted there.

    Attributes:
        size: number of pairs that are scored at every length: `evaluate.max_tokens`, or as many as the
            longest of the lengths that the text can fill, or all that there are.
        likelihood: whether the targets' losses add up to the likelihood of a text, which those of hidden
            tokens do not.
        starts: the index of each document's first input token, int64.
        end: number of pairs in the whole split.
    """

    def __init__(self, task: Task, source: DataSource, lengths: list[int] | tuple[int, ...]):
        self._stream = source.stream("valid")
        self.units = source.units
        self.fingerprint = source.fingerprint
        self.likelihood = task.recipe.task.name != "masked_language_modelling"
        self.starts = self._stream.document_starts
        self.end = max(0, len(self._stream) - int(self.likelihood))
        longest = max((length for length in lengths if length < len(self._stream)), default=0)
        self.size = min(self.end, max(task.recipe.evaluate.max_tokens, longest))
        self._masked = None
        if not self.likelihood:
            self.mask_fraction = task.recipe.task.mask_fraction
            self._masked = source.dataset("valid", length=self.size)[0] if self.size else None

    def inputs(self, start: int, stop: int) -> np.ndarray:
        """Input tokens, int64 [stop-start]."""
        if self._masked is not None:
            return self._masked["tokens"].numpy()[start:stop]
        return self._stream[start:stop].astype(np.int64)

    def targets(self, start: int, stop: int) -> np.ndarray:
        """Targets, int64 [stop-start]; -100 where nothing is asked."""
        if self._masked is not None:
            return self._masked["targets"].numpy()[start:stop]
        return self._stream[start + 1 : stop + 1].astype(np.int64)

    def documents(self, pairs: np.ndarray) -> np.ndarray:
        """The document in which each pair's target stands, as an index into `starts`."""
        place = pairs + int(self.likelihood)
        return np.searchsorted(self.starts, place, side="right") - 1

    def digest(self, pairs: np.ndarray, *more: object) -> str:
        """Which targets these are, in 12 hex digits: the same for the same targets of the same text."""
        hidden = None if self.likelihood else self.mask_fraction
        said = (sorted(self.fingerprint.items()), "valid", hidden, *more)
        digest = hashlib.sha256(repr(said).encode())
        digest.update(np.ascontiguousarray(pairs, dtype="<i8").tobytes())
        return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Plan:
    """The windows that are read, and from where on the targets of each are scored: int64 [W] each.

    Window w reads the input tokens `starts[w]` to `stops[w] - 1`, and the pairs `scored[w]` to `stops[w] - 1`
    are scored. No pair is scored twice.
    """

    starts: np.ndarray
    stops: np.ndarray
    scored: np.ndarray

    @property
    def tokens(self) -> int:
        """How many tokens the model reads."""
        return int((self.stops - self.starts).sum())

    def batches(self, batch_tokens: int) -> Iterator[np.ndarray]:
        """Indices of windows of one length, in batches of at most `batch_tokens` tokens (or one window)."""
        lengths = self.stops - self.starts
        for length in sorted(set(lengths.tolist()), reverse=True):
            windows = np.flatnonzero(lengths == length)
            rows = max(1, batch_tokens // length)
            yield from (windows[start : start + rows] for start in range(0, len(windows), rows))


@dataclass(frozen=True)
class Losses:
    """What was scored: the pairs in ascending order, int64 [N], the loss of each in nats, float64 [N], and
    how many tokens of its window the model could see, int64 [N]."""

    pairs: np.ndarray
    nats: np.ndarray
    context: np.ndarray

    def __getitem__(self, chosen: np.ndarray) -> Losses:
        return Losses(self.pairs[chosen], self.nats[chosen], self.context[chosen])


def read(task: Task, text: Text, plan: Plan, place: Place) -> Losses:
    """The loss of every target in a plan, the same in every process."""

    def run(windows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        spans = list(zip(plan.starts[windows].tolist(), plan.stops[windows].tolist(), strict=True))
        tokens = torch.from_numpy(np.stack([text.inputs(*span) for span in spans]))
        targets = np.stack([text.targets(*span) for span in spans])
        pairs = plan.starts[windows, None] + np.arange(tokens.shape[1])
        asked = (pairs >= plan.scored[windows, None]) & (targets >= 0)
        rows, places = np.nonzero(asked)
        nats = _losses(task, tokens, rows, places, targets[asked], place.device)
        return pairs[asked], nats, places + 1

    def tokens_of(windows: np.ndarray) -> int:
        return int((plan.stops[windows] - plan.starts[windows]).sum())

    parts = share(place, plan.batches(task.recipe.evaluate.batch_tokens), tokens_of, run)
    pairs, nats, context = (np.concatenate(column) for column in zip(*parts, strict=True))
    # In this order they are added up to the same sum, however many processes there were.
    order = np.argsort(pairs, kind="stable")
    return Losses(pairs, nats, context)[order]


def _losses(
    task: Task,
    tokens: torch.Tensor,
    rows: np.ndarray,
    places: np.ndarray,
    targets: np.ndarray,
    device: torch.device,
) -> np.ndarray:
    """The losses at some places of a batch [B,T], float64 [N]; logits are never held for all of them."""
    hidden = task.model.hidden(tokens.to(device))
    scored = hidden[torch.from_numpy(rows).to(device), torch.from_numpy(places).to(device)]
    wanted = torch.from_numpy(targets).to(device)
    losses = [
        token_losses(task.model.unembed(part), some).double().cpu()
        for part, some in zip(scored.split(LOGIT_TOKENS), wanted.split(LOGIT_TOKENS), strict=True)
    ]
    return torch.cat(losses).numpy() if losses else np.zeros(0)


def row_of(text: Text, losses: Losses) -> Row:
    """documents, tokens, loss_nats, perplexity, and of a likelihood word_perplexity and bits_per_byte.

    Each measure M with the ends of its 95 % interval over documents, `M_low` and `M_high`; None where one
    document is all, or a loss is not finite. `units` has what each document adds.
    """
    if not len(losses.pairs):
        return {"note": "no token is scored: the text is too short for its hidden tokens"}
    documents, unit = np.unique(text.documents(losses.pairs), return_inverse=True)
    per_target = [losses.nats, np.ones(len(losses.nats))]
    if text.likelihood:
        first, last = int(losses.pairs[0]), int(losses.pairs[-1]) + 1
        inputs = text.inputs(first, last)[losses.pairs - first]
        targets = text.targets(first, last)[losses.pairs - first]
        per_target += [text.units.bytes_of(targets, inputs), text.units.words_of(targets, inputs)]
    sums = np.stack([np.bincount(unit, values, len(documents)) for values in per_target], axis=1)
    row: Row = {"documents": len(documents), "tokens": len(losses.pairs)}
    row |= _measure("loss_nats", sums, 1)
    row |= _exponential("perplexity", row, "loss_nats")
    if text.likelihood:
        per_word = _measure("word", sums, 3)
        row |= _exponential("word_perplexity", per_word, "word")
        row |= _measure("bits_per_byte", sums, 2, 1 / math.log(2))
    sizes = sums[:, 2] if text.likelihood else None
    return row | {UNITS: document_units(documents, sums[:, 0], sums[:, 1], sizes)}


def _measure(name: str, sums: np.ndarray, per: int, factor: float = 1.0) -> Row:
    """The loss per token, byte or word: column 0 by column `per`, summed over documents."""
    total = sums.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(factor * total[0] / total[per])
    low, high = interval_of_ratio(factor * sums[:, 0], sums[:, per]) if total[per] else UNKNOWN
    # No loss is below zero, however few documents there are.
    return {name: value, f"{name}_low": None if low is None else max(low, 0.0), f"{name}_high": high}


def _exponential(name: str, row: Row, of: str) -> Row:
    """The exponential of a measure. It keeps the order, so that an interval's ends go to those of its own."""
    return {
        name + end: None if row[of + end] is None else perplexity(row[of + end])
        for end in ("", "_low", "_high")
    }
