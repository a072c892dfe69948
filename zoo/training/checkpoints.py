"""The checkpoints that a run keeps, the last one (with the card) and the best one."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from zoo.files import atomic_file
from zoo.runs.card import write_card
from zoo.runs.checkpoint_file import read_checkpoint
from zoo.runs.folder import BEST, LAST, kept_checkpoint
from zoo.training.module import TaskModule

if TYPE_CHECKING:
    from zoo.training.run import TrainingRun


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint next to the old one, flushes and renames it: a kill leaves the old or the new one.

    Lightning's own goes through a temporary file that may lie on another disk, holds all of the checkpoint in
    memory once more, and does not flush.

    Args:
        run: has the content of the checkpoint to resume from, verified already: it is not read again.
    """

    def __init__(self, run: TrainingRun | None = None):
        self.run = run

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The content given, once, and then what `read_checkpoint` reads from the file."""
        if self.run is None or self.run.content is None:
            return read_checkpoint(Path(path))
        content, self.run.content = self.run.content, None  # three times the model: freed when it is restored
        return content

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Raises OSError where it cannot be written; the old file is then as it was."""
        path = Path(path)
        path.parent.mkdir(exist_ok=True)  # not the run's folder: where that is gone, so is the run
        with atomic_file(path) as file:
            torch.save(checkpoint, file)


class BestCheckpoint(Checkpoint):
    """Keeps checkpoints/best.ckpt, the one of the lowest validation loss; its state is that loss."""

    def __init__(self, run: TrainingRun):
        self.run, self.loss = run, math.inf
        self.present = False

    @property
    def state_key(self) -> str:
        return "best"

    def setup(self, trainer: pl.Trainer, module: TaskModule, stage: str) -> None:
        self.present = trainer.strategy.broadcast((self.run.folder / BEST).exists())

    def on_validation_end(self, trainer: pl.Trainer, module: TaskModule) -> None:
        loss = float(trainer.callback_metrics.get("val/loss", math.nan))
        # NaN is never below. All processes save, or none.
        if not trainer.sanity_checking and trainer.strategy.reduce_boolean_decision(loss < self.loss):
            self.loss = loss
            trainer.save_checkpoint(self.run.folder / BEST, weights_only=False)

    def state_dict(self) -> dict[str, Any]:
        return {"best_model_score": torch.tensor(self.loss, dtype=torch.float64)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # Without its file a loss would keep the next best one from being written.
        if self.present and state_dict["best_model_score"] is not None:
            self.loss = float(state_dict["best_model_score"])


class LastCheckpoint(Checkpoint):
    """Keeps checkpoints/last.ckpt, every so many steps, when stopped and at the end; card.json goes with it.

    Where a step is validated, its checkpoint is written once that is done: Lightning never repeats the
    validation of a step that it resumes from, and one that was killed would be lost.

    `stops` tells whether the run ends with the step in hand.
    """

    def __init__(self, run: TrainingRun, stops: Callable[[], bool]):
        config = run.recipe.checkpoint
        self.run, self.stops = run, stops
        self.every, self.kept = config.every_n_steps, config.keep_every_n_steps or math.inf

    def on_train_start(self, trainer: pl.Trainer, module: TaskModule) -> None:
        self.run.saved_at = trainer.global_step
        self._write_card(trainer)
        self._keep(trainer)  # a killed run may have saved this step, and not kept it

    def on_train_batch_end(self, trainer: pl.Trainer, module: TaskModule, outputs: Any, *_: Any) -> None:
        # Saved here and not after the last step: Lightning would then take the epoch for finished.
        if self._is_due(trainer) and not _is_validated_next(trainer):
            self._save(trainer)

    def on_validation_end(self, trainer: pl.Trainer, module: TaskModule) -> None:
        if not trainer.sanity_checking and self._is_due(trainer):
            self._save(trainer)

    def on_save_checkpoint(self, trainer: pl.Trainer, module: TaskModule, checkpoint: dict) -> None:
        self._update_card(trainer)
        checkpoint["zoo_card"] = dict(self.run.card)

    def on_load_checkpoint(self, trainer: pl.Trainer, module: TaskModule, checkpoint: dict) -> None:
        recount(checkpoint["loops"]["fit_loop"], trainer.accumulate_grad_batches)

    def _is_due(self, trainer: pl.Trainer) -> bool:
        step = trainer.global_step
        ends = step == trainer.max_steps or trainer.should_stop or self.stops()
        is_due = step % self.every == 0 or step % self.kept == 0 or ends
        return step != self.run.saved_at and is_between_steps(trainer) and is_due

    def _save(self, trainer: pl.Trainer) -> None:
        trainer.save_checkpoint(self.run.folder / LAST, weights_only=False)
        self.run.saved_at = trainer.global_step
        self._write_card(trainer)
        self._keep(trainer)

    def _keep(self, trainer: pl.Trainer) -> None:
        """Keep a copy of the last checkpoint as that of its step, where this is due and was not done."""
        last, kept = self.run.folder / LAST, kept_checkpoint(self.run.folder, self.run.saved_at)
        is_due = self.run.saved_at and self.run.saved_at % self.kept == 0 and trainer.is_global_zero
        if is_due and last.exists() and not kept.exists():
            with atomic_file(kept) as file, last.open("rb") as saved:
                shutil.copyfileobj(saved, file)

    def _update_card(self, trainer: pl.Trainer) -> None:
        steps = trainer.global_step
        tokens = steps * self.run.recipe.tokens_per_step
        self.run.card.update(steps=steps, tokens_seen=tokens, finished=steps >= trainer.max_steps)

    def _write_card(self, trainer: pl.Trainer) -> None:
        self._update_card(trainer)
        if trainer.is_global_zero:
            write_card(self.run.folder, self.run.card)


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


def _is_validated_next(trainer: pl.Trainer) -> bool:
    """Whether Lightning will validate once the hooks of this batch are done, by its own condition."""
    loop = trainer.fit_loop.epoch_loop
    if not loop._should_check_val_fx(trainer.fit_loop._data_fetcher):
        return False
    loop.val_loop.setup_data()  # keeps an existing loader, which tells whether it has batches
    return not loop.val_loop.skip
