"""Ends a run at a NaN or infinity, and keeps them out of checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from zoo.console import command
from zoo.errors import RunError
from zoo.runs.folder import RECIPE
from zoo.training.callbacks import StepLog
from zoo.training.module import TaskModule
from zoo.training.run import TrainingRun


class NanGuard(Callback):
    """Ends a run whose loss or gradient is NaN or infinite, and keeps non-finite values out of checkpoints.

    On a CPU every step is checked. Reading a value off another device waits for it: there it is done where
    a step is logged or saved. The processes of a run end at the same step, each with the same error.

    Raises:
        RunError: a loss, a gradient norm, a weight or a moment of the optimizer is not finite.
    """

    def __init__(self, step_log: StepLog, run: TrainingRun) -> None:
        self.step_log, self.run = step_log, run
        self.step = 0
        self.losses: list[Tensor] = []  # of the parts of the step in hand
        self.last = torch.zeros(2)  # loss and gradient norm of the last step, on the device

    def on_train_start(self, trainer: pl.Trainer, module: TaskModule) -> None:
        self.step = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, module: TaskModule, outputs: Any, *_: Any) -> None:
        self.losses.append(outputs["loss"].detach())
        step = trainer.global_step
        if step == self.step:
            return  # within an accumulated batch
        self.last = torch.stack([torch.stack(self.losses).sum(), module.gradient_norm])
        self.step, self.losses = step, []
        is_logged = step % trainer.log_every_n_steps == 0 or step == trainer.max_steps
        if is_logged or module.device.type == "cpu":
            self._check(trainer, module)

    def on_save_checkpoint(self, trainer: pl.Trainer, module: TaskModule, checkpoint: dict) -> None:
        states = [state for optimizer in trainer.optimizers for state in optimizer.state.values()]
        moments = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        self._check(trainer, module, [*(one.detach() for one in module.parameters()), *moments])

    def on_validation_end(self, trainer: pl.Trainer, module: TaskModule) -> None:
        loss = trainer.callback_metrics.get("val/loss")
        if loss is None or trainer.sanity_checking or not trainer.is_global_zero or math.isfinite(loss):
            return
        # The weights and the training loss are finite: the user decides whether to continue.
        step = trainer.global_step
        print(f"the validation loss is {float(loss)} at step {step}; no best.ckpt is kept of it", flush=True)

    def _check(self, trainer: pl.Trainer, module: TaskModule, saved: Iterable[Tensor] = ()) -> None:
        """A collective: every process calls it at the same step. `saved` is what a checkpoint will hold."""
        # A gradient scaler skips a step whose gradient is not finite, and scales less from then on.
        checked = self.last if _scaler(trainer) is None else self.last[:1]
        wrong = not (_is_finite([checked]) and _is_finite(saved))
        if trainer.strategy.reduce_boolean_decision(wrong, all=False):
            self._fail(trainer, module)

    def _fail(self, trainer: pl.Trainer, module: TaskModule) -> None:
        """A collective: every process calls it at the same step, and their losses may differ."""
        strategy = trainer.strategy
        loss, norm = strategy.reduce(self.last.to(strategy.root_device), reduce_op="mean").tolist()
        names = [name for name, weight in module.named_parameters() if not _is_finite([weight.detach()])]
        if not math.isfinite(loss):
            what = f"the loss is {loss} at step {self.step}"
        elif _scaler(trainer) is None and not math.isfinite(norm):
            what = f"the gradient is not finite at step {self.step}"
        elif names:
            more = f" and {len(names) - 2} more" if len(names) > 2 else ""
            what = f"the weights {', '.join(names[:2])}{more} are not finite after step {self.step}"
        else:
            what = f"weights or moments of the optimizer are not finite after step {self.step}"
        facts = f"learning rate {self.step_log.lr:.3g}, loss {loss:.4g}, gradient norm {norm:.4g}"
        raise RunError(f"{what} ({facts}): training has failed. {_advice(self.run)}")


def _advice(run: TrainingRun) -> str:
    helps = "a lower optimizer.lr, a longer optimizer.warmup_steps or a wider trainer.precision may help"
    anomaly = "trainer.detect_anomaly=true names the operation, slowly"
    if not run.saved_at:
        return f"No checkpoint was written. Start anew: {helps}; {anomaly}"
    sets = ["--set", f"init_from={run.folder}", "--set", "optimizer.lr=..."]
    again = command("fit", "--recipe", run.folder / RECIPE, *sets)
    return (
        f"The last checkpoint is of step {run.saved_at} and is sound. With --resume it comes to the "
        f"same step again ({anomaly}); start another run from its weights ({again}) or anew: "
        f"{helps}"
    )


def _is_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every element is finite; waits for the device once."""
    # The norm is faster than isfinite; a value too large to be squared counts as not finite.
    return bool(torch.nn.utils.get_total_norm([*tensors]).isfinite())


def _scaler(trainer: pl.Trainer) -> torch.amp.GradScaler | None:
    return getattr(trainer.precision_plugin, "scaler", None)
