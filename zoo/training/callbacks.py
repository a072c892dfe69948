"""What happens around the steps: seeds, speed, the progress bar, the card."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, ProgressBar
from torch import Tensor
from tqdm import tqdm

from zoo.seeds import seed_of
from zoo.training.card import write_card


def peak_memory_mb(device: torch.device) -> float:
    """The most memory held so far: on the GPU what torch allocated, on a CPU the process's resident size."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


class SeededSteps(Callback):
    """Seeds torch before every batch from (seed, batches so far, rank).

    A checkpoint does not hold the generator's state; with this a resumed run draws the same dropout as one that
    was never interrupted.
    """

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, index: int) -> None:
        done = trainer.fit_loop.total_batch_idx + 1
        torch.manual_seed(seed_of(module.recipe.seed, "step", done, trainer.global_rank))


class StepLog(Callback):
    """Logs loss, learning rate, gradient norm, tokens per second and memory every so many steps.

    Reading a loss off a device waits for it, so it is read only when it is logged.
    """

    def __init__(self, tokens_per_step: int):
        self.tokens_per_step = tokens_per_step
        self.micro: list[Tensor] = []
        self.started = 0.0
        self.started_at = 0
        self.tokens_per_second = math.nan

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.started, self.started_at = time.perf_counter(), trainer.global_step
        self.micro = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        self.micro.append(outputs["loss"].detach())
        step = trainer.global_step
        every = trainer.log_every_n_steps
        if step == self.started_at or step % every and step != trainer.max_steps:
            return
        # One number for all devices and all parts of the accumulated batches.
        loss = trainer.strategy.reduce(torch.stack(self.micro).mean(), reduce_op="mean")
        now = time.perf_counter()
        self.tokens_per_second = (step - self.started_at) * self.tokens_per_step / (now - self.started)
        self.started, self.started_at, self.micro = now, step, []
        values = {
            "train/loss": loss.item() * trainer.accumulate_grad_batches,
            "train/lr": trainer.optimizers[0].param_groups[0]["lr"],
            "train/tokens_per_second": self.tokens_per_second,
            "train/peak_memory_mb": peak_memory_mb(module.device),
            "train/tokens_seen": step * self.tokens_per_step,
        }
        for logger in trainer.loggers:
            logger.log_metrics(values, step=step)
        trainer.callback_metrics["train/loss"] = torch.tensor(values["train/loss"])

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.paused = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        # Validation is not training time.
        self.started += time.perf_counter() - self.paused
        # Logged here and not by Lightning, which counts the step of a validation differently from training's.
        values = {key: value.item() for key, value in trainer.callback_metrics.items() if key.startswith("val/")}
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)


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
        # A terminal is redrawn in place; a log file gets a line now and then.
        pause = 0.2 if sys.stderr.isatty() else 15
        self.bar = tqdm(
            total=trainer.max_steps, initial=trainer.global_step, desc=module.recipe.name, unit="step",
            mininterval=pause, miniters=1, dynamic_ncols=True, disable=not self.enabled or trainer.global_rank > 0,
        )  # fmt: skip

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


class CardWriter(Callback):
    """Keeps the card in step with the newest checkpoint."""

    def __init__(self, folder: Path, card: dict[str, Any], tokens_per_step: int):
        self.folder = folder
        self.card = card
        self.tokens_per_step = tokens_per_step

    def write(self, trainer: pl.Trainer) -> None:
        if not trainer.is_global_zero:
            return
        steps = trainer.global_step
        self.card.update(
            steps=steps, tokens_seen=steps * self.tokens_per_step, finished=steps >= trainer.max_steps
        )
        write_card(self.folder, self.card)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.write(trainer)

    def on_save_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict) -> None:
        checkpoint["zoo_card"] = {**self.card, "steps": trainer.global_step}

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.write(trainer)
