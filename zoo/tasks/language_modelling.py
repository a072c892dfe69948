"""Language modelling: predict the next token."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from zoo.data.blocks import NOT_SCORED
from zoo.data.text.tokenizer import TextTokenizer
from zoo.registry import register
from zoo.tasks.task import Task


@register.task("language_modelling")
class LanguageModelling(Task):
    """Predict the next token.

    A batch holds `tokens` [B,T] and `targets` [B,T].
    """

    takes = "text"
    protocols = ("nonoverlapping", "sliding", "fixed_targets", "per_position", "repeats", "prompts")

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        return self.model(batch["tokens"], targets=batch["targets"]) / batch["targets"].numel()

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        losses = self.model(batch["tokens"], targets=batch["targets"], reduction="none")
        return {"loss": losses[batch["targets"] != NOT_SCORED]}


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
