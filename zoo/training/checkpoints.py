"""The checkpoints that a run keeps: the last one, with the card, and the best one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint

from zoo.runs.card import write_card
from zoo.runs.folder import LAST
from zoo.training.interruption import Interruption


class LastCheckpoint(Checkpoint):
    """Keeps checkpoints/last.ckpt, every so many steps, when stopped and at the end; card.json goes with it.

    `saved_at` is the step of the checkpoint; 0 before the first.
    """

    def __init__(
        self, folder: Path, every: int, card: dict[str, Any], tokens_per_step: int, interruption: Interruption
    ):
        self.folder = folder
        self.every = every
        self.card = card
        self.tokens_per_step = tokens_per_step
        self.interruption = interruption
        self.saved_at = 0

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        # The first process has chosen the folder; the others learn of it here.
        self.folder = trainer.strategy.broadcast(self.folder)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.saved_at = trainer.global_step
        self._write_card(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        step = trainer.global_step
        ends = step == trainer.max_steps or trainer.should_stop or self.interruption.due
        if step != self.saved_at and (step % self.every == 0 or ends):
            # Saved here and not after the last step: Lightning would then take the epoch for finished.
            trainer.save_checkpoint(self.folder / LAST, weights_only=False)
            self.saved_at = step
            self._write_card(trainer)

    def on_save_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict) -> None:
        self._count(trainer)
        checkpoint["zoo_card"] = dict(self.card)

    def _count(self, trainer: pl.Trainer) -> None:
        steps = trainer.global_step
        self.card.update(
            steps=steps, tokens_seen=steps * self.tokens_per_step, finished=steps >= trainer.max_steps
        )

    def _write_card(self, trainer: pl.Trainer) -> None:
        self._count(trainer)
        if trainer.is_global_zero:
            write_card(self.folder, self.card)
