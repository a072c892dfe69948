"""Shared by all protocols for text: the text, the windows that are read, and a row made from losses.

A protocol chooses the windows of the text and the targets to score in each (`Windows`). The rest is shared:
windows of equal length are read in batches, and losses are reported per token, byte and word with an interval
over documents. Windows cross documents, except in `fixed_targets`; with `data.packing: separate` a token sees
its own document alone, as in training. The unit of the interval is
the document, because tokens of one document are correlated. For a text of few documents the units are
consecutive blocks, each at least as long as the longest length.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from zoo.data.blocks import NOT_SCORED
from zoo.data.source import DataSource
from zoo.evaluation.interval import UNKNOWN, interval_of_ratio
from zoo.evaluation.measurement import Targets, Units
from zoo.evaluation.protocols.protocol import (
    Execution,
    LengthPlan,
    MeasurementPlan,
    Numbers,
    Protocol,
    end_of_encoding,
    make_targets,
    split_among,
)
from zoo.models.vocabulary_loss import token_losses
from zoo.recipe.sections import MAX_TOKENS, EvaluateConfig
from zoo.tasks.language_modelling import perplexity, start_token
from zoo.tasks.task import Task

LOGIT_TOKENS = 4096
"""Logits over the vocabulary are made for no more tokens than this at a time."""
FEW_DOCUMENTS = 10
"""With fewer, the units of intervals are blocks of text."""
MAX_BLOCKS = 16
"""Blocks of text: few enough that they seldom depend on the longest length."""


@dataclass(frozen=True)
class Windows:
    """The windows that are read, and from where on the targets of each are scored: int64 [W] each.

    Window w reads the input tokens `starts[w]` to `stops[w] - 1`, and the pairs `scored[w]` to `stops[w] - 1`
    are scored. No pair is scored twice.
    """

    starts: np.ndarray
    stops: np.ndarray
    scored: np.ndarray

    @property
    def tokens(self) -> int:
        """The number of tokens that the model reads."""
        return int((self.stops - self.starts).sum())

    def batches(self, batch_tokens: int, added: np.ndarray) -> Iterator[np.ndarray]:
        """Indices of windows of one length, in batches of at most `batch_tokens` tokens (or one window).

        Args:
            added: the start tokens before each window, 0 or 1, [W].
        """
        lengths = self.stops - self.starts + added
        for length in sorted(set(lengths.tolist()), reverse=True):
            windows = np.flatnonzero(lengths == length)
            rows = max(1, batch_tokens // length)
            yield from (windows[start : start + rows] for start in range(0, len(windows), rows))


@dataclass(frozen=True)
class Losses:
    """The scored pairs in ascending order, int64 [N], the loss of each in nats, float64 [N], and the tokens
    that the model could see there, the start token included, int64 [N]."""

    pairs: np.ndarray
    nats: np.ndarray
    context: np.ndarray

    def __getitem__(self, chosen: np.ndarray) -> Losses:
        return Losses(self.pairs[chosen], self.nats[chosen], self.context[chosen])


class Text:
    """A split as pairs: pair i is the input token i, and the target to be predicted there.

    Args:
        lengths: those asked for.

    Attributes:
        size: number of pairs that are scored at every length: at most `evaluate.max_tokens`.
        start_token: the token before each window, or None. It counts in the length of a window.
        blocks: number of blocks of the scored text, none shorter than the longest length: of those asked for
            and, for the text of the recipe, those of the recipe.
        likelihood: whether the losses add up to the likelihood of a text; those of masked tokens do not.
        starts: the index of each document's first input token, int64.
        end: number of pairs in the whole split.
    """

    def __init__(self, task: Task, source: DataSource, lengths: Sequence[int]):
        config = task.recipe.evaluate
        self.split, self.max_tokens = config.split or "valid", config.max_tokens or MAX_TOKENS
        if config.max_tokens_per_document:
            source = source.beginnings(self.split, config.max_tokens_per_document, self.max_tokens)
        self.task, self.source = task, source
        self._stream = source.stream(self.split)
        self.likelihood = task.recipe.task.name != "masked_language_modelling"
        self.starts = self._stream.document_starts
        self.end = max(0, len(self._stream) - int(self.likelihood))
        self.size = min(self.end, self.max_tokens)
        self.start_token = start_token(task, source.tokenizer)
        # The recipe's lengths keep the blocks of its own text the same for any lengths.
        asked = lengths if source.label else (*lengths, *config.lengths)
        longest = max((one for one in asked if one <= self.size), default=1)
        self.blocks = min(MAX_BLOCKS, self.size // longest)
        # The end token of a document that is cut cannot be predicted.
        ends_count = config.end_tokens and not config.max_tokens_per_document
        self._left_out = None if ends_count else source.tokenizer.end_token
        self._masked = None
        if not self.likelihood:
            self._masked = source.dataset(self.split, length=self.size)[0] if self.size else None

    def room(self, length: int) -> int:
        """The text tokens in a window of `length` tokens."""
        return length - (self.start_token is not None)

    def _more_documents(self) -> str:
        """The keys that score more documents, as the end of a sentence; empty where there are none."""
        remedies = []
        if np.searchsorted(self.starts, self.size) < len(self.starts):
            remedies.append("evaluate.max_tokens_per_document scores the beginnings of more")
        if self.source.label and self.split != "all":
            remedies.append("evaluate.split=all those of all splits")
        return "".join(f"; {one}" for one in remedies)

    def longest_sequence(self, length: int) -> int:
        """The tokens of the longest sequence in windows of a length: a document where these are separate."""
        if not self.source.separate:
            return length
        begins = self._stream.document_begins(self.likelihood)
        sizes = np.diff(begins, append=self.end)[begins < self.size]
        return min(length, int(sizes.max(initial=0)) + length - self.room(length))

    def inputs(self, start: int, stop: int) -> np.ndarray:
        """Input tokens, int64 [stop-start]."""
        if self._masked is not None:
            return self._masked["tokens"].numpy()[start:stop]
        return self._stream[start:stop].astype(np.int64)

    def targets(self, start: int, stop: int) -> np.ndarray:
        """Targets, int64 [stop-start]; -100 where nothing is asked."""
        if self._masked is not None:
            return self._masked["targets"].numpy()[start:stop]
        targets = self._stream[start + 1 : stop + 1].astype(np.int64)
        return targets if self._left_out is None else np.where(targets == self._left_out, NOT_SCORED, targets)

    def parameters(self, protocol: Protocol) -> dict[str, Any]:
        """The parameters that record the split, packing, end tokens and size of documents: none for the
        defaults."""
        packing = {"packing": "separate"} if self.source.separate else {}
        end_tokens = {} if self._left_out is None else {"end_tokens": False}
        config = self.task.recipe.evaluate
        size = config.max_tokens_per_document
        cut = {"max_tokens_per_document": size} if size else {}
        return protocol.scored_split(config)[1] | packing | end_tokens | cut

    def documents(self, pairs: np.ndarray) -> np.ndarray:
        """The document in which each pair's target stands, as an index into `starts`."""
        place = pairs + int(self.likelihood)
        return np.searchsorted(self.starts, place, side="right") - 1

    def targets_at(self, pairs: np.ndarray) -> Targets:
        """The targets of these pairs, ascending; their digest is the same for the same targets of the same
        text."""
        targets = self.targets(0, int(pairs.max(initial=-1)) + 1)[pairs]
        pairs, fraction = pairs[targets >= 0], None
        if self._masked is not None:
            fraction = self.task.recipe.task.mask_fraction
        named = sorted(self.source.fingerprint.items()), self.split, fraction
        places = np.ascontiguousarray(pairs, dtype="<i8").tobytes()
        text = self.source.fingerprint["corpus"][:12]
        return make_targets(
            named, len(pairs), self.start_token and self.start_token.text, places, text=text,
            max_tokens=self.max_tokens, end_tokens=int((targets == self.source.tokenizer.end_token).sum()),
        )  # fmt: skip

    def length_plan(
        self,
        length: int,
        tokens: int,
        score: Callable[[Execution], Numbers | list[Numbers]],
        note: str | None = None,
    ) -> LengthPlan:
        """The plan of one length that reads so many tokens; with a note where there is an obstacle."""
        available = len(self._stream)
        if length >= available:
            split = {"valid": "validation"}.get(self.split, self.split)
            note = f"the {split} text has only {available} tokens"
        elif length > self.max_tokens:
            note = f"only evaluate.max_tokens={self.max_tokens} are scored; raise it to {length} or more"
        elif not self.room(length):
            note = "the start token leaves no room for text"
        note = end_of_encoding(self.task, self.longest_sequence(length)) or note
        if note is None and self._masked is not None and not (self.targets(0, self.size) >= 0).any():
            note = "no token is scored: the text is too short for its hidden tokens"
        return LengthPlan(length, note=note) if note else LengthPlan(length, tokens, score)

    def read(self, windows: Windows, execution: Execution) -> Losses:
        """The loss of every target in some windows, the same in every process."""

        added, start = np.zeros_like(windows.starts), np.zeros(0, np.int64)
        if self.start_token is not None:
            start = np.array([self.start_token.id])
            # A window whose first token is the start token gets no second one.
            added[:] = [self.inputs(at, at + 1)[0] != start[0] for at in windows.starts]

        def rows_of(start: int, stop: int, count: int) -> np.ndarray:
            """As `TokenStream.document_rows`; a start token belongs to the first document of its window."""
            rows = self._stream.document_rows(start, stop, self.likelihood)
            return np.concatenate([np.zeros(count, np.int64), np.where(rows > 0, rows + count, 0)])

        def run(batch: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            columns = windows.starts[batch], windows.stops[batch], added[batch]
            spans = list(zip(*(column.tolist() for column in columns), strict=True))
            inputs = [np.concatenate([start[:count], self.inputs(*span)]) for *span, count in spans]
            tokens = torch.from_numpy(np.stack(inputs))
            # The pair at the place of a start token is the one before the window, and is not scored.
            targets = np.stack(
                [np.concatenate([start[:count], self.targets(*span)]) for *span, count in spans]
            )
            pairs = (windows.starts - added)[batch, None] + np.arange(tokens.shape[1])
            asked = (pairs >= windows.scored[batch, None]) & (targets >= 0)
            rows, places = np.nonzero(asked)
            documents = np.stack([rows_of(*span) for span in spans]) if self.source.separate else None
            nats = _losses(self.task, tokens, documents, rows, places, targets[asked], execution)
            context = places + 1 - (0 if documents is None else documents[asked])
            return pairs[asked], nats, context

        def tokens_of(batch: np.ndarray) -> int:
            return int((windows.stops[batch] - windows.starts[batch]).sum())

        batches = windows.batches(self.task.recipe.evaluate.batch_tokens, added)
        parts = split_among(execution, batches, tokens_of, run)
        pairs, nats, context = (np.concatenate(column) for column in zip(*parts, strict=True))
        # In this order they are added up to the same sum, however many processes there were.
        order = np.argsort(pairs, kind="stable")
        return Losses(pairs, nats, context)[order]

    def numbers_of(self, losses: Losses, words: bool = True) -> Numbers:
        """documents, tokens, loss_nats, perplexity, and of a likelihood word_perplexity and bits_per_byte.

        Pass `words=False` where the losses are not those of whole words: then there is no word_perplexity.

        Each measure M with the ends of its 95 % interval over documents, `M_low` and `M_high`; None where one
        unit is all, or a loss is not finite. `units` has the sums of each document. Of few documents `blocks`
        has those of each block of text, and the intervals are over blocks.
        """
        per_target = [losses.nats, np.ones(len(losses.nats))]
        if self.likelihood:
            first, last = int(losses.pairs[0]), int(losses.pairs[-1]) + 1
            inputs = self.inputs(first, last)[losses.pairs - first]
            targets = self.targets(first, last)[losses.pairs - first]
            units = self.source.units
            per_target += [units.bytes_of(targets), units.words_of(targets, inputs)]

        def summed(kind: str, unit_of: np.ndarray) -> tuple[np.ndarray, Units]:
            found, unit = np.unique(unit_of, return_inverse=True)
            sums = np.stack([np.bincount(unit, values, len(found)) for values in per_target], axis=1)
            sizes = sums[:, 2] if self.likelihood else None
            return sums, Units.of_documents(found, sums[:, 0], sums[:, 1], sizes, kind)

        sums, units = summed("documents", self.documents(losses.pairs))
        numbers: Numbers = {"documents": len(sums), "tokens": len(losses.pairs), "units": units}
        blocks = np.minimum(losses.pairs * self.blocks // self.size, self.blocks - 1)
        if len(sums) < min(FEW_DOCUMENTS, len(np.unique(blocks))):
            sums, numbers["blocks"] = summed("blocks", blocks)
            numbers["remark"] = (
                f"fewer than {FEW_DOCUMENTS} documents: intervals are over {len(sums)} consecutive blocks of "
                f"{self.size // self.blocks:,} tokens{self._more_documents()}"
            )
        numbers |= _measure("loss_nats", sums, 1)
        numbers |= _exponential("perplexity", numbers, "loss_nats")
        if self.likelihood and words:
            numbers |= _exponential("word_perplexity", _measure("word", sums, 3), "word")
        if self.likelihood:
            numbers |= _measure("bits_per_byte", sums, 2, 1 / math.log(2))
        return numbers


class WholeText(Protocol):
    """A protocol that scores every token of the text once, at each length in other windows."""

    def parameters(self, config: EvaluateConfig) -> dict[str, Any]:
        """The parameters of the protocol, as a row names them."""
        return {}

    @abstractmethod
    def windows(self, config: EvaluateConfig, size: int, length: int) -> Windows:
        """Windows of a length that score each of `size` pairs once."""

    def plan(self, task: Task, source: DataSource, lengths: Sequence[int]) -> list[MeasurementPlan]:
        text, config = Text(task, source, lengths), task.recipe.evaluate
        planned = []
        for length in lengths:
            windows = self.windows(config, text.size, max(1, min(text.room(length), text.size)))
            planned.append(text.length_plan(length, windows.tokens, partial(_score, text, windows)))
        targets = text.targets_at(np.arange(text.size))
        parameters = self.parameters(config) | text.parameters(self)
        return [MeasurementPlan(parameters, targets, planned)]


def _score(text: Text, windows: Windows, execution: Execution) -> Numbers:
    return text.numbers_of(text.read(windows, execution))


def _losses(
    task: Task,
    tokens: torch.Tensor,
    documents: np.ndarray | None,
    rows: np.ndarray,
    places: np.ndarray,
    targets: np.ndarray,
    execution: Execution,
) -> np.ndarray:
    """The losses at some places of a batch [B,T], float64 [N]; logits are never held for all of them."""
    device = execution.device
    separate = {} if documents is None else {"documents": torch.from_numpy(documents).to(device)}
    hidden = task.model.hidden(tokens.to(device), **separate)
    at = [torch.from_numpy(x).to(device) for x in (rows, places, targets)]

    def of_rows(some: slice) -> torch.Tensor:
        rows, places, targets = (x[some] for x in at)
        parts = zip(hidden[rows, places].split(LOGIT_TOKENS), targets.split(LOGIT_TOKENS), strict=True)
        return torch.cat([token_losses(task.model.unembed(part), wanted) for part, wanted in parts])

    return execution.in_shares(len(rows), of_rows).double().cpu().numpy()


def _measure(name: str, sums: np.ndarray, per: int, factor: float = 1.0) -> Numbers:
    """The loss per token, byte or word: column 0 by column `per`, summed over documents."""
    total = sums.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(factor * total[0] / total[per])
    low, high = interval_of_ratio(factor * sums[:, 0], sums[:, per]) if total[per] else UNKNOWN
    # No loss is below zero, however few documents there are.
    return {name: value, f"{name}_low": None if low is None else max(low, 0.0), f"{name}_high": high}


def _exponential(name: str, numbers: Numbers, of: str) -> Numbers:
    """The exponential of a measure. It keeps the order, so that an interval's ends go to those of its own."""
    return {
        name + end: None if numbers[of + end] is None else perplexity(numbers[of + end])
        for end in ("", "_low", "_high")
    }
