"""Callbacks around the steps: seeds, the log, the progress bar."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback, ProgressBar, Timer
from torch import Tensor
from torch.optim import Optimizer
from tqdm import tqdm

from zoo.console import progress_bar
from zoo.memory import peak_memory_mb
from zoo.seeds import seed_of
from zoo.training.checkpoints import is_between_steps
from zoo.training.module import TaskModule


class SeededSteps(Callback):
    """Seeds torch before every batch from (seed, batches so far, rank), and the positions that are drawn from
    (seed, step) alone.

    A checkpoint does not hold the generator's state; with this a resumed run draws the same dropout as one
    that was never interrupted.
    """

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: TaskModule, batch: dict[str, Tensor], index: int
    ) -> None:
        done = trainer.fit_loop.total_batch_idx + 1
        seed = seed_of(module.recipe.seed, "step", done, trainer.global_rank)
        # torch.manual_seed keeps a printed stack for each kind of device that is not in use: 0.2 ms.
        on_cpu = module.device.type == "cpu"
        (torch.default_generator if on_cpu else torch).manual_seed(seed)
        step, part = divmod(done - 1, trainer.accumulate_grad_batches)
        tokens, documents = batch["tokens"], batch.get("documents")
        first = (part * trainer.world_size + trainer.global_rank) * len(tokens)
        module.model.encoding.seed_draws(module.recipe.seed, step, tokens, first, documents)


LOSSES = "zoo_losses"
"""The key in a checkpoint of the losses since the last row of the log."""


class StepLog(Callback):
    """Logs loss, gradient norm, learning rate, speed and memory every so many steps, and every validation.

    Reading a loss off a device waits for it, so it is read only when it is logged.
    """

    def __init__(self) -> None:
        self.losses: list[Tensor] = []
        self.lr = math.nan
        self.began = self.paused = 0.0
        self.began_at = 0

    def on_train_start(self, trainer: pl.Trainer, module: TaskModule) -> None:
        self.began, self.began_at = time.perf_counter(), trainer.global_step

    def on_save_checkpoint(self, trainer: pl.Trainer, module: TaskModule, checkpoint: dict) -> None:
        # Between two rows of the log: the next one is the mean over these too, in a resumed run as well.
        if self.losses:
            own = torch.stack(self.losses)
            losses = [own]
            if trainer.world_size > 1:
                losses = [torch.empty_like(own) for _ in range(trainer.world_size)]
                dist.all_gather(losses, own)
            parts = trainer.accumulate_grad_batches
            checkpoint[LOSSES] = {"losses": torch.stack(losses).cpu(), "accumulate": parts}

    def on_load_checkpoint(self, trainer: pl.Trainer, module: TaskModule, checkpoint: dict) -> None:
        state = checkpoint.get(LOSSES)
        # With other devices or other parts, the next losses have another shape.
        shape = trainer.world_size, trainer.accumulate_grad_batches
        if state is not None and (len(state["losses"]), state["accumulate"]) == shape:
            # The model, and `module.device` with it, is moved later.
            self.losses = [*state["losses"][trainer.global_rank].to(trainer.strategy.root_device)]

    def on_before_optimizer_step(self, trainer: pl.Trainer, module: TaskModule, optimizer: Optimizer) -> None:
        # Once the step is over, the schedule has set that of the next one.
        self.lr = float(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(self, trainer: pl.Trainer, module: TaskModule, outputs: Any, *_: Any) -> None:
        self.losses.append(outputs["loss"].detach())
        step = trainer.global_step
        due = step % trainer.log_every_n_steps == 0 or step == trainer.max_steps
        if step == self.began_at or not due:
            return
        # One number for all devices and all parts of the accumulated batches.
        loss = trainer.strategy.reduce(torch.stack(self.losses).mean(), reduce_op="mean").item()
        loss *= trainer.accumulate_grad_batches
        now, tokens_per_step = time.perf_counter(), module.recipe.tokens_per_step
        values = {
            "train/loss": loss,
            "train/gradient_norm": module.gradient_norm.item(),
            "train/lr": self.lr,
            "train/tokens_per_second": (step - self.began_at) * tokens_per_step / (now - self.began),
            "train/peak_memory_mb": peak_memory_mb(module.device),
            "train/tokens_seen": step * tokens_per_step,
        }
        self.began, self.began_at, self.losses = now, step, []
        for logger in trainer.loggers:
            logger.log_metrics(values, step=step)

    def on_validation_start(self, trainer: pl.Trainer, module: TaskModule) -> None:
        self.paused = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, module: TaskModule) -> None:
        # Validation is not training time.
        self.began += time.perf_counter() - self.paused
        if trainer.sanity_checking:
            return
        # Logged here and not by Lightning, which counts the step of a validation differently from training's.
        metrics = trainer.callback_metrics
        values = {key: value.item() for key, value in metrics.items() if key.startswith("val/")}
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)


class StepBar(ProgressBar):
    """One bar over all steps of the run: loss, tokens per second, time left."""

    def __init__(self) -> None:
        super().__init__()
        self.enabled = True
        self.bar: tqdm | None = None
        self.times: deque[tuple[float, int]] = deque(maxlen=50)

    def disable(self) -> None:
        self.enabled = False

    def enable(self) -> None:
        self.enabled = True

    def on_train_start(self, trainer: pl.Trainer, module: TaskModule) -> None:
        super().on_train_start(trainer, module)
        # Lightning disables the bars of all processes but the first.
        if self.enabled:
            name = f"{module.recipe.name}{': compiling' if module.recipe.compile else ''}"
            self.bar = progress_bar(trainer.max_steps, name, "step", initial=trainer.global_step)

    def on_train_batch_end(self, trainer: pl.Trainer, module: TaskModule, outputs: Any, *_: Any) -> None:
        now, step = time.time(), trainer.global_step
        if self.bar is None or (self.times and step == self.times[-1][1]):
            return
        if not self.times:
            self.bar.set_description(module.recipe.name, refresh=False)
        self.times.append((now, step))
        # The loss is read off the device, which waits for it, only where it is shown.
        if now - self.bar.last_print_t >= self.bar.mininterval:
            (then, first), parts = self.times[0], trainer.accumulate_grad_batches
            speed = (step - first) * module.recipe.tokens_per_step / max(now - then, 1e-9)
            shown = {"loss": f"{outputs['loss'].item() * parts:.3f}", "tokens/s": f"{speed:,.0f}"}
            if "val/loss" in trainer.callback_metrics:
                shown["val"] = f"{trainer.callback_metrics['val/loss'].item():.3f}"
            self.bar.set_postfix(shown, refresh=False)
        self.bar.update(step - self.bar.n)

    def on_train_end(self, trainer: pl.Trainer, module: TaskModule) -> None:
        self._close()

    def on_exception(self, trainer: pl.Trainer, module: TaskModule, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        self.bar = None


class StepTimer(Timer):
    """Lightning's `max_time`, that ends a run between two steps and not within an accumulated batch."""

    def _check_time_remaining(self, trainer: pl.Trainer) -> None:
        if is_between_steps(trainer):
            super()._check_time_remaining(trainer)
