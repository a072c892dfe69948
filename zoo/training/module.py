"""A task as Lightning trains it: optimizer and schedule, gradient clipping, logged validation."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.optim import Optimizer
from torchmetrics import MeanMetric

from zoo.optimizers import build_optimizer
from zoo.schedules import schedule_of
from zoo.tasks.task import Task


def exact_mean(**options: Any) -> MeanMetric:
    """The mean of losses in nats, or of right answers, as a sum and a count in float64.

    NaN where there was nothing, and where a value is NaN.
    """
    return MeanMetric(nan_strategy="disable", **options).set_dtype(torch.float64)


class TaskModule(pl.LightningModule):
    """The model of a task in training; its weights have the names that they have in a checkpoint.

    Attributes:
        gradient_norm: of the current step, over all weights and before clipping; a scalar on its device.
    """

    def __init__(self, task: Task):
        super().__init__()
        self.task, self.recipe, self.model = task, task.recipe, task.model
        self.save_hyperparameters(task.settings)
        self.means = torch.nn.ModuleDict({name: exact_mean() for name in task.validated})
        self.gradient_norm = torch.tensor(math.nan)

    def on_train_start(self) -> None:
        # A checkpoint holds the rate of its next step by the max_steps of that time.
        schedule = self.lr_schedulers()
        groups = zip(schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True)
        for group, lr, factor in groups:
            group["lr"] = lr * factor(schedule.last_epoch)

    def training_step(self, batch: dict[str, Tensor], batch_index: int) -> Tensor:
        return self.task.loss(batch)

    def validation_step(self, batch: dict[str, Tensor], batch_index: int) -> None:
        for name, values in self.task.validate(batch).items():
            self.means[name].update(values)
            self.log(f"val/{name}", self.means[name], on_step=False, on_epoch=True, logger=False)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as Lightning does, and keep the norm."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if gradient_clip_val and gradient_clip_algorithm in (None, "norm"):
            self.gradient_norm = torch.nn.utils.clip_grad_norm_(parameters, gradient_clip_val)
        else:
            gradients = [p.grad for p in parameters if p.grad is not None]
            self.gradient_norm = torch.nn.utils.get_total_norm(gradients)
            if gradient_clip_val:
                torch.nn.utils.clip_grad_value_(parameters, gradient_clip_val)

    def configure_optimizers(self) -> dict[str, Any]:
        config = self.recipe.optimizer
        optimizer = build_optimizer(config, self.model, self.recipe.trainer.precision)
        factor = schedule_of(config, self.recipe.trainer.max_steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
