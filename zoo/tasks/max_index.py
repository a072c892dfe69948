"""Max-index: point at the first largest token of a sequence."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from zoo.registry import register
from zoo.tasks.task import Task, split_by_length


@register.task("max_index")
class MaxIndexTask(Task):
    """Point at the first largest token.

    The answer is a pointer: one logit for each position, a softmax over the sequence. It has an output for
    every position at any length, so that longer sequences test the encoding and no untrained output. A batch
    holds `tokens` [B,T] and `answer` [B], the index of the first largest token.
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
        """Accuracy of the index (`accuracy`) and of the value, [B] each.

        Both also separately for answers `_within` the trained length and `_beyond` it; NaN for the others.
        """
        index, value = judge(self.model(batch["tokens"]), batch)
        within = batch["answer"] < self.recipe.data.sequence_length
        judged = {"accuracy": index, "value_accuracy": value}
        for measure, values in (("accuracy", index), ("value_accuracy", value)):
            judged |= split_by_length(measure, values, within)
        return judged


TIE = 1e-3
"""Logits that differ by less, in nats, are tied: only rounding separates them."""


def judge(logits: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Correctness of the pointer's index, and of the value there, [B] each, from 0 to 1.

    The second needs no position: it separates finding the largest value from finding the first of several. A
    pointer that ties k positions scores 1/k for one of them, as a guess would. An argmax would pick the
    first, which is the answer, for a model without any sense of order, since that ties all equal tokens.
    """
    tokens, answer = batch["tokens"], batch["answer"][:, None]
    tied = logits.float() >= logits.float().amax(-1, keepdim=True) - TIE
    # NaN logits tie with nothing: such a pointer is wrong.
    share = tied / tied.sum(-1, keepdim=True).clamp(min=1)
    as_large = tokens == tokens.gather(1, answer)
    return share.gather(1, answer)[:, 0], (share * as_large).sum(-1)
