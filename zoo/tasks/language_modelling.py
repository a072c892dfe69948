"""Language modelling: predict the next token."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from zoo.data.blocks import NOT_SCORED
from zoo.registry import register
from zoo.tasks.metrics import ExactMean
from zoo.tasks.task import Task


@register.task("language_modelling")
class LanguageModelling(Task):
    """Predict the next token.

    A batch holds `tokens` [B,T] and `targets` [B,T].
    """

    takes, protocols = "text", ("nonoverlapping", "sliding", "fixed_targets", "per_position")

    def __init__(self, recipe: dict[str, Any], vocab_size: int):
        super().__init__(recipe, vocab_size)
        self.val_loss = ExactMean()

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        return token_losses(self.model(batch["tokens"]), batch["targets"]).mean()

    def validation_step(self, batch: dict[str, Tensor], batch_index: int) -> None:
        losses = token_losses(self.model(batch["tokens"]), batch["targets"])
        self.val_loss.update(losses[batch["targets"] != NOT_SCORED])
        rows = len(batch["tokens"])
        self.log("val/loss", self.val_loss, on_step=False, on_epoch=True, logger=False, batch_size=rows)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss in nats at every position, as targets [...], from logits [...,V]; 0 where not scored."""
    losses = F.cross_entropy(
        logits.flatten(0, -2).float(), targets.flatten(), reduction="none", ignore_index=NOT_SCORED
    )
    return losses.view_as(targets)
