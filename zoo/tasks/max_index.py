"""Max-index: point at the first largest token of a sequence."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from zoo.registry import register
from zoo.tasks.task import Task, split_by_length


@register.task("max_index")
class MaxIndex(Task):
    """Point at the first largest token.

    The answer is a pointer: one logit for each position, a softmax over the sequence.

    A pointer has an output for every position of a sequence of any length, so that beyond the trained length
    it is the encoding that is tested and not an output that was never trained. A batch holds `tokens` [B,T]
    and `answer` [B], the index of the first largest token.
    """

    takes, kinds, protocols = "pointer", ("decoder", "encoder"), ("accuracy",)
    head = "pointer"
    validated = ("loss", "index_accuracy", "value_accuracy")

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(self.model(batch["tokens"]).float(), batch["answer"])

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = self.model(batch["tokens"])
        index, value = judge(logits, batch)
        losses = F.cross_entropy(logits.float(), batch["answer"], reduction="none")
        return {"loss": losses, "index_accuracy": index, "value_accuracy": value}

    def judge(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Right about the index (`accuracy`) and about the value, [B] each.

        Both also apart for answers `_within` the trained length and `_beyond` it; NaN for the other kind.
        """
        index, value = judge(self.model(batch["tokens"]), batch)
        within = batch["answer"] < self.recipe.data.sequence_length
        return {
            "accuracy": index,
            "value_accuracy": value,
            **split_by_length("accuracy", index, within),
            **split_by_length("value_accuracy", value, within),
        }


TIE = 1e-3
"""Logits that differ by less, in nats, are tied: rounding decides between them and not the model."""


def judge(logits: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """How right the pointer is about the index, and about the value, [B] each, from 0 to 1.

    The second needs no position: it tells attention that finds the largest value from a sense of order that
    picks the first of several. A pointer that ties k positions is right about one of them with 1/k, as a
    guess among them would be. An argmax would give it the first, and so the right answer, for nothing: a
    model without any sense of order ties all equal tokens.
    """
    tokens, answer = batch["tokens"], batch["answer"][:, None]
    tied = logits.float() >= logits.float().amax(-1, keepdim=True) - TIE
    # Logits that are not numbers tie with nothing: a pointer to nowhere is wrong.
    share = tied / tied.sum(-1, keepdim=True).clamp(min=1)
    as_large = tokens == tokens.gather(1, answer)
    return share.gather(1, answer)[:, 0], (share * as_large).sum(-1)
