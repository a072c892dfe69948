"""Evaluation protocols: each scores one model at one length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.data.masking import NOT_SCORED
from zoo.data.source import DataSource
from zoo.tasks.language_modelling import token_losses
from zoo.tasks.max_index import judge
from zoo.tasks.metrics import ExactMean, perplexity
from zoo.tasks.task import Task

LOGIT_TOKENS = 4096
"""Logits over the vocabulary are made for no more tokens than this at a time."""

ALONE = {"sync_on_compute": False}
"""For metrics: only the first process of a run evaluates, so there is nobody to add up with."""

Advance = Callable[[int], None]
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One measurement: the length, all lengths that are compared, and where the work happens."""

    length: int
    longest: int
    device: torch.device
    advance: Advance


def nonoverlapping(task: Task, source: DataSource, setting: Setting) -> Row:
    """The validation text in windows of `length` side by side, every token scored once.

    The same target tokens are scored at every length, so that lengths can be compared. Longer windows also
    leave fewer tokens near a window's beginning, where there is little context: a loss that falls with the
    length does not by itself show that far context is used. For masked language modelling the targets are the
    hidden tokens, hidden at the same places whatever the length.

    Returns: tokens, loss_nats, perplexity, and for next-token prediction word_perplexity and bits_per_byte.
    """
    tokens, targets, likelihood = _scored_text(task, source, setting.longest)
    loss = ExactMean(**ALONE)
    for start, stop, rows in _batches(len(tokens), setting.length, task.recipe.evaluate.batch_tokens):
        inputs = torch.from_numpy(tokens[start:stop]).view(rows, -1).to(setting.device)
        wanted = torch.from_numpy(targets[start:stop]).view(rows, -1).to(setting.device)
        loss.update(_losses(task, inputs, wanted).cpu())
        setting.advance(stop - start)
    mean = loss.compute().item()
    row = {"tokens": int(loss.count), "loss_nats": mean, "perplexity": perplexity(mean)}
    if likelihood:
        total = loss.total.item()
        num_words = int(source.units.words_of(targets, tokens).sum())
        num_bytes = int(source.units.bytes_of(targets, tokens).sum())
        row["word_perplexity"] = perplexity(total / num_words)
        row["bits_per_byte"] = total / np.log(2) / num_bytes
    return row


def accuracy(task: Task, source: DataSource, setting: Setting) -> Row:
    """Max-index: the fraction of sequences for which the first largest token is pointed at.

    Also whether the token pointed at is as large as that, and both split by whether the answer lies within
    the trained length or beyond it. A rate over no answers is None.
    """
    settings, trained = task.recipe.evaluate, task.recipe.data.sequence_length
    examples = source.examples("test", setting.length, settings.samples)
    per_batch = max(1, settings.batch_tokens // setting.length)
    places = ("", "_within", "_beyond")
    right = {what + where: ExactMean(**ALONE) for what in ("index", "value") for where in places}
    for start in range(0, len(examples), per_batch):
        batch = examples.batch(range(start, min(start + per_batch, len(examples))))
        logits = task.model(batch["tokens"].to(setting.device)).cpu()
        parts = {"": slice(None), "_within": batch["answer"] < trained, "_beyond": batch["answer"] >= trained}
        for what, judged in zip(("index", "value"), judge(logits, batch), strict=True):
            for where, part in parts.items():
                right[what + where].update(judged[part])
        setting.advance(batch["tokens"].numel())
    row: Row = {"samples": len(examples), "tokens": len(examples) * setting.length}
    row["accuracy"] = right["index"].compute().item()
    row["value_accuracy"] = right["value"].compute().item()
    for where in ("_within", "_beyond"):
        count = int(right["index" + where].count)
        row["samples" + where] = count
        row["accuracy" + where] = right["index" + where].compute().item() if count else None
        row["value_accuracy" + where] = right["value" + where].compute().item() if count else None
    return row


PROTOCOLS: dict[str, Callable[[Task, DataSource, Setting], Row]] = {
    "nonoverlapping": nonoverlapping,
    "accuracy": accuracy,
}


def work(task: Task, source: DataSource, length: int, longest: int) -> int:
    """How many tokens a protocol will read at a length, for the progress bar."""
    if source.kind == "max_index":
        return task.recipe.evaluate.samples * length
    return len(_scored_text(task, source, longest)[0])


def _scored_text(task: Task, source: DataSource, longest: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Inputs and targets [N], and whether the targets' losses add up to a likelihood."""
    stream, limit = source.stream("valid"), task.recipe.evaluate.max_tokens
    if task.recipe.task.name == "masked_language_modelling":
        whole = source.dataset("valid", length=min(len(stream), max(limit, longest)))[0]
        return whole["tokens"].numpy(), whole["targets"].numpy(), False
    text = stream[: min(len(stream), max(limit, longest) + 1)].astype(np.int64)
    return text[:-1], text[1:], True


def _batches(total: int, length: int, batch_tokens: int) -> Iterator[tuple[int, int, int]]:
    """(start, stop, windows) of batches that cover the text; the rest that fills no window comes last."""
    step = length * max(1, batch_tokens // length)
    whole = total - total % length
    for start in range(0, whole, step):
        stop = min(start + step, whole)
        yield start, stop, (stop - start) // length
    if whole < total:
        yield whole, total, 1


def _losses(task: Task, tokens: Tensor, targets: Tensor) -> Tensor:
    """The losses of the scored tokens, [N]; logits are never held for the whole batch."""
    hidden = task.model.hidden(tokens).flatten(0, 1)
    targets = targets.flatten()
    losses = [
        token_losses(task.model.unembed(part), wanted)
        for part, wanted in zip(hidden.split(LOGIT_TOKENS), targets.split(LOGIT_TOKENS), strict=True)
    ]
    return torch.cat(losses)[targets != NOT_SCORED]
