"""Language modelling: predict the next token."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from torch import Tensor

from zoo.data.blocks import NOT_SCORED
from zoo.data.text.tokenizer import TextTokenizer
from zoo.registry import register
from zoo.tasks.task import Task


@register.task("language_modelling")
class LanguageModelling(Task):
    """Predict the next token.

    A batch holds `tokens` [B,T], `targets` [B,T] and, where documents are separate, `documents` [B,T].
    """

    takes = "text"
    protocols = ("nonoverlapping", "sliding", "fixed_targets", "per_position", "repeats", "prompts")

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        return self.losses(batch, "sum") / batch["targets"].numel()

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"loss": self.losses(batch, "none")[batch["targets"] != NOT_SCORED]}

    def losses(self, batch: dict[str, Tensor], reduction: Literal["sum", "none"]) -> Tensor:
        targets, documents = batch["targets"], batch.get("documents")
        return self.model(batch["tokens"], targets=targets, reduction=reduction, documents=documents)


class StartToken(NamedTuple):
    text: str
    id: int


def start_token(task: Task, tokenizer: TextTokenizer) -> StartToken | None:
    """The token that each window and prompt begins with, if any.

    Only imported models have one: training here reads windows of a text without a start token.
    """
    chosen = task.recipe.evaluate.start_token == "auto" and task.card.get("imported")
    text = tokenizer.start_token if chosen else None
    return None if text is None else StartToken(text, tokenizer.tokenizer.token_to_id(text))


def perplexity(loss: float) -> float:
    """exp(loss), infinite where that is beyond a float.

    >>> perplexity(0.0), perplexity(1e4)
    (1.0, inf)
    """
    return math.exp(loss) if loss < 709 else math.inf
