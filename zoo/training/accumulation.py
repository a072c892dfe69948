"""Gradient accumulation: a run can be saved or stopped only between two optimizer steps."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Timer


def is_between_steps(trainer: pl.Trainer) -> bool:
    """Whether no batch of an unfinished step has been taken: its gradients are in no checkpoint."""
    return not trainer.fit_loop.epoch_loop._should_accumulate()


def recount(fit_loop: dict[str, Any], accumulate: int) -> None:
    """Count the batches of a checkpoint in parts of the size that they have from now on, in place.

    Lightning makes a step where its count is a multiple of accumulate_grad_batches: after another number of
    parts to a step the first one would be made of too few. `fit_loop` is the state of Lightning's loop.
    """
    before = fit_loop["state_dict"]["combined_loader"][0]["accumulate"]
    progress = fit_loop["epoch_loop.batch_progress"]
    for counts in (progress["total"], progress["current"]):
        # A checkpoint that is written before a batch is over has one less of them completed.
        begun = counts["processed"] - counts["completed"]
        for key in ("ready", "started", "processed"):
            counts[key] = counts[key] * accumulate // before
        counts["completed"] = counts["processed"] - begun


class StepTimer(Timer):
    """Lightning's `max_time`, that ends a run between two steps and not within an accumulated batch."""

    @property
    def state_key(self) -> str:
        return "Timer"  # as in checkpoints that were written with Lightning's own

    def _check_time_remaining(self, trainer: pl.Trainer) -> None:
        if is_between_steps(trainer):
            super()._check_time_remaining(trainer)
