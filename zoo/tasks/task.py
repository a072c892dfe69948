"""What all tasks share: the model, the optimizer and its schedule, and what is logged."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from zoo.encodings.stack import EncodingStack
from zoo.models.transformer import Decoder, Encoder, Transformer
from zoo.optimizers import build_optimizer
from zoo.recipe import resolve, schema
from zoo.schedules import schedule_of
from zoo.tasks.built_recipe import BuiltRecipe


def build_model(
    recipe: schema.Recipe,
    vocab_size: int,
    head: Literal["vocabulary", "pointer"] = "vocabulary",
    encoding: EncodingStack | None = None,
) -> Transformer:
    """The transformer of a recipe at its initial weights, on the CPU, with its encoding if already built."""
    kind = Decoder if recipe.model.kind == "decoder" else Encoder
    return kind(recipe.model, vocab_size, recipe.data.sequence_length, head, recipe.seed, encoding)


class Task(pl.LightningModule):
    """A model and what it is asked to do. Subclasses say what a batch costs and what is measured.

    Args:
        recipe: a resolved one, or one whose encoding is built; a checkpoint holds it as plain data.
        vocab_size: number of token ids.

    Attributes:
        card: what is known of the run that it was trained in; empty before training.
        changed: what of its encoding was set anew after training, by dotted key; empty where nothing was.
        gradient_norm: of the step in hand, over all weights and before clipping: a number, on its device.
    """

    name: ClassVar[str]
    takes: ClassVar[str] = ""
    """What examples it learns from: what a dataset `gives`."""
    kinds: ClassVar[tuple[str, ...]] = ("decoder",)
    """Kinds of model that it is for."""
    protocols: ClassVar[tuple[str, ...]] = ()
    """How its models can be evaluated; the first is the default."""
    hides_tokens: ClassVar[bool] = False
    """Of a text: it predicts tokens that are hidden from the model, in place of the next one."""
    head: ClassVar[Literal["vocabulary", "pointer"]] = "vocabulary"

    def __init__(self, recipe: schema.Recipe | BuiltRecipe | dict[str, Any], vocab_size: int):
        super().__init__()
        built = recipe if isinstance(recipe, BuiltRecipe) else None
        given = built.recipe if built else recipe
        self.recipe = given if isinstance(given, schema.Recipe) else resolve(given)
        self.save_hyperparameters({"recipe": self.recipe.as_dict(), "vocab_size": vocab_size})
        self.model = build_model(self.recipe, vocab_size, self.head, built and built.encoding)
        self.card: dict[str, Any] = {}
        self.changed: dict[str, Any] = {}
        self.gradient_norm = torch.tensor(math.nan)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens)

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean loss of a batch, in nats."""
        raise NotImplementedError

    def judge(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """How right the answer to each example of a batch is, from 0 to 1: [B] for each measure.

        The first measure is the main one. NaN where a measure does not apply to an example. Only tasks that
        have an answer are judged.
        """
        raise NotImplementedError

    def on_train_start(self) -> None:
        # A checkpoint holds the rate of its next step by the max_steps that the run had until then.
        schedule = self.lr_schedulers()
        groups = zip(schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True)
        for group, lr, factor in groups:
            group["lr"] = lr * factor(schedule.last_epoch)

    def training_step(self, batch: dict[str, Tensor], batch_index: int) -> Tensor:
        return self.loss(batch)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as Lightning does, and keep the norm."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if gradient_clip_val and gradient_clip_algorithm in (None, "norm"):
            norm = torch.nn.utils.clip_grad_norm_(parameters, gradient_clip_val)
        else:
            norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        self.gradient_norm = norm.full_tensor() if isinstance(norm, DTensor) else norm

    def configure_optimizers(self) -> dict[str, Any]:
        config = self.recipe.optimizer
        # Lightning's mixed precision does not clip the gradients of a fused optimizer.
        fused = not self.recipe.trainer.precision.endswith("-mixed")
        optimizer = build_optimizer(config, self.model.parameters(), fused)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, schedule_of(config, self.recipe.trainer.max_steps)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def split_by_length(measure: str, values: Tensor, within: Tensor) -> dict[str, Tensor]:
    """A measure [B] apart for the examples where `within` [B] holds and for all others; NaN elsewhere."""
    return {
        f"{measure}_within": values.masked_fill(~within, math.nan),
        f"{measure}_beyond": values.masked_fill(within, math.nan),
    }
