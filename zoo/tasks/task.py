"""The base of all tasks: a model, its loss and its measures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from torch import Tensor, nn

from zoo.errors import MOST_SHOWN, InputError, shorten
from zoo.models.transformer import Decoder, Encoder
from zoo.recipe import resolve, schema


class Task:
    """A model and its objective. Subclasses give the loss of a batch and the measures of its answers.

    Args:
        recipe: a resolved one, or one whose encoding is built; a checkpoint holds it as plain data.
        vocab_size: number of token ids.

    Attributes:
        card: the card of the run that trained it; empty before training.
        changed: options of its encoding that were changed after training, by dotted key.
    """

    name: ClassVar[str]
    takes: ClassVar[str] = ""
    """Kind of its examples: that which a dataset `gives`."""
    kinds: ClassVar[tuple[str, ...]] = ("decoder",)
    """Kinds of model."""
    protocols: ClassVar[tuple[str, ...]] = ()
    """Protocols that evaluate its models; the first is the default."""
    hides_tokens: ClassVar[bool] = False
    """Whether it predicts hidden tokens of a text instead of the next one."""
    validated: ClassVar[tuple[str, ...]] = ("loss",)
    """Names of the values of `validate`."""
    head: ClassVar[Literal["vocabulary", "pointer"]] = "vocabulary"

    def __init__(self, recipe: schema.Recipe | dict[str, Any], vocab_size: int):
        self.recipe = recipe if isinstance(recipe, schema.Recipe) else resolve(recipe)
        self.vocab_size = vocab_size
        kind = Decoder if self.recipe.model.kind == "decoder" else Encoder
        length, seed = self.recipe.data.sequence_length, self.recipe.seed
        self.model = kind(self.recipe.model, vocab_size, length, self.head, seed)
        self.card: dict[str, Any] = {}
        self.changed: dict[str, Any] = {}

    @property
    def settings(self) -> dict[str, Any]:
        """What makes it again: `hyper_parameters` of a checkpoint."""
        return {"recipe": self.recipe.as_dict(), "vocab_size": self.vocab_size}

    def state_dict(self) -> dict[str, Tensor]:
        """Its weights, by their names in a checkpoint."""
        return self.model.state_dict(prefix="model.")

    def restore(self, weights: Mapping[str, Tensor], where: Path | None = None) -> None:
        """Take weights. Raises InputError, as of the file `where`, if they do not fit or are NaN."""
        begin = f"{where}: " if where else ""
        try:
            nn.ModuleDict({"model": self.model}).load_state_dict(weights)
        except RuntimeError as error:
            faults = "; ".join(line.strip() for line in str(error).splitlines()[1:])
            message = f"{begin}its weights do not fit its recipe: {shorten(faults, MOST_SHOWN)}"
            raise InputError(message) from error
        # A buffer may hold infinities: a mask is made of them.
        wrong = [name for name, value in self.model.named_parameters("model") if not value.isfinite().all()]
        if wrong:
            why = "training had failed when it was written; an earlier one may be usable"
            raise InputError(f"{begin}{why}: {', '.join(wrong[:6])}: NaN or infinite numbers")

    def eval(self) -> Self:
        """Puts the model into evaluation mode."""
        self.model.eval()
        return self

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean loss of a batch, in nats."""
        raise NotImplementedError

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Values of any shape by name; their mean over the validation data is logged as `val/NAME`."""
        raise NotImplementedError

    def judge(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Correctness of the answer to each example, from 0 to 1: [B] for each measure, the main one first.

        NaN where a measure does not apply to an example. Only for tasks that have an answer.
        """
        raise NotImplementedError


def split_by_length(measure: str, values: Tensor, within: Tensor) -> dict[str, Tensor]:
    """A measure [B] apart for the examples where `within` [B] holds and for all others; NaN elsewhere."""
    return {
        f"{measure}_within": values.masked_fill(~within, math.nan),
        f"{measure}_beyond": values.masked_fill(within, math.nan),
    }
