"""What happens around the steps: seeds, the log, the progress bar, checkpoints and the card."""

from __future__ import annotations

import math
import time
from collections import deque
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, ProgressBar
from torch import Tensor
from tqdm import tqdm

from zoo.errors import RunError
from zoo.memory import peak_memory_mb
from zoo.progress import progress_bar
from zoo.runs.card import write_card
from zoo.runs.checkpoint import LAST
from zoo.seeds import seed_of
from zoo.training.interruption import Interruption


class SeededSteps(Callback):
    """Seeds torch before every batch from (seed, batches so far, rank).

    A checkpoint does not hold the generator's state; with this a resumed run draws the same dropout as one
    that was never interrupted.
    """

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, index: int
    ) -> None:
        done = trainer.fit_loop.total_batch_idx + 1
        torch.manual_seed(seed_of(module.recipe.seed, "step", done, trainer.global_rank))


class StepLog(Callback):
    """Logs loss, learning rate, tokens per second and memory every so many steps, and every validation.

    Reading a loss off a device waits for it, so it is read only when it is logged or a checkpoint is written.

    Raises:
        RunError: the loss was NaN or infinite. No checkpoint is written after that.
    """

    def __init__(self, tokens_per_step: int):
        self.tokens_per_step = tokens_per_step
        self.losses: list[Tensor] = []
        self.began = self.paused = 0.0
        self.began_at = 0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.began, self.began_at, self.losses = time.perf_counter(), trainer.global_step, []

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        self.losses.append(outputs["loss"].detach())
        step = trainer.global_step
        due = step % trainer.log_every_n_steps == 0 or step == trainer.max_steps
        if step == self.began_at or not due:
            return
        # One number for all devices and all parts of the accumulated batches.
        loss = trainer.strategy.reduce(self._mean_loss(), reduce_op="mean").item()
        loss *= trainer.accumulate_grad_batches
        now = time.perf_counter()
        values = {
            "train/loss": loss,
            "train/lr": trainer.optimizers[0].param_groups[0]["lr"],
            "train/tokens_per_second": (step - self.began_at) * self.tokens_per_step / (now - self.began),
            "train/peak_memory_mb": peak_memory_mb(module.device),
            "train/tokens_seen": step * self.tokens_per_step,
        }
        self.began, self.began_at, self.losses = now, step, []
        for logger in trainer.loggers:
            logger.log_metrics(values, step=step)
        _must_be_finite(loss, trainer)

    def on_save_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict) -> None:
        if self.losses:
            _must_be_finite(self._mean_loss().item(), trainer)

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.paused = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        # Validation is not training time.
        self.began += time.perf_counter() - self.paused
        if trainer.sanity_checking:
            return
        # Logged here and not by Lightning, which counts the step of a validation differently from training's.
        metrics = trainer.callback_metrics
        values = {key: value.item() for key, value in metrics.items() if key.startswith("val/")}
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)

    def _mean_loss(self) -> Tensor:
        return torch.stack(self.losses).mean()


def _must_be_finite(loss: float, trainer: pl.Trainer) -> None:
    if math.isfinite(loss):
        return
    saved_at = max((c.saved_at for c in trainer.callbacks if isinstance(c, LastCheckpoint)), default=0)
    saved = f"the last checkpoint is of step {saved_at}" if saved_at else "no checkpoint was written"
    raise RunError(
        f"the loss is {loss} at step {trainer.global_step}: training has failed, and {saved}. A lower "
        f"optimizer.lr, a longer optimizer.warmup_steps or a wider trainer.precision may help"
    )


class StepBar(ProgressBar):
    """One bar over all steps of the run: loss, tokens per second, time left."""

    def __init__(self, tokens_per_step: int):
        super().__init__()
        self.tokens_per_step = tokens_per_step
        self.enabled = True
        self.bar: tqdm | None = None
        self.times: deque[tuple[float, int]] = deque(maxlen=50)

    def disable(self) -> None:
        self.enabled = False

    def enable(self) -> None:
        self.enabled = True

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        super().on_train_start(trainer, module)
        # Lightning disables the bars of all processes but the first.
        self.bar = progress_bar(
            trainer.max_steps,
            module.recipe.name,
            "step",
            initial=trainer.global_step,
            disable=not self.enabled,
        )

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        if self.bar is None or self.bar.disable:
            return
        now, step = time.time(), trainer.global_step
        if step == self.bar.n:
            return
        self.times.append((now, step))
        if now - self.bar.last_print_t >= self.bar.mininterval:
            # Only now is the loss read off the device, which waits for it.
            then, then_step = self.times[0]
            speed = (step - then_step) * self.tokens_per_step / max(now - then, 1e-9)
            shown = {
                "loss": f"{outputs['loss'].item() * trainer.accumulate_grad_batches:.3f}",
                "tokens/s": f"{speed:,.0f}",
            }
            if "val/loss" in trainer.callback_metrics:
                shown["val"] = f"{trainer.callback_metrics['val/loss'].item():.3f}"
            self.bar.set_postfix(shown, refresh=False)
        self.bar.update(step - self.bar.n)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._close()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


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
            trainer.save_checkpoint(self.folder / "checkpoints" / LAST, weights_only=False)
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
