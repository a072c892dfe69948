"""Masked language modelling: predict the tokens that are hidden."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from zoo.recipe.fields import Number
from zoo.registry import register
from zoo.tasks.language_modelling import LanguageModelling


@register.task("masked_language_modelling")
class MaskedLanguageModelling(LanguageModelling):
    """Predict the hidden tokens; `targets` are -100 elsewhere.

    Args:
        mask_fraction: fraction of the tokens that is to be predicted.
    """

    kinds, protocols, hides_tokens = ("encoder",), ("nonoverlapping",), True

    def __init__(
        self,
        recipe: dict[str, Any],
        vocab_size: int,
        *,
        mask_fraction: Annotated[Number, Field(gt=0, lt=1)] = 0.15,
    ):
        super().__init__(recipe, vocab_size)
        self.mask_fraction = mask_fraction

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        # Divided by the expected count and not by the drawn one: then the mean over devices is that of the
        # global batch.
        expected = self.mask_fraction * batch["targets"].numel()
        return self.losses(batch, "sum") / expected
