"""Answering: write the answer that follows a prompt."""

from __future__ import annotations

from torch import Tensor

from zoo.data.blocks import NOT_SCORED
from zoo.models.vocabulary_loss import token_losses
from zoo.registry import register
from zoo.tasks.task import Task, split_by_length


@register.task("answering")
class Answering(Task):
    """Continue a prompt with its answer.

    Only the answer is scored. A batch holds `tokens` [B,T], prompt and answer padded on the right, and
    `targets` [B,T], which are -100 wherever no token of an answer is predicted. A decoder is causal, so
    padding on the right needs no mask.
    """

    takes, protocols = "answers", ("accuracy",)
    validated = ("loss", "accuracy", "token_accuracy")

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        # The mean over examples: devices have equally many examples, but not equally many tokens.
        return answer_losses(*self._answers(batch)).mean()

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        logits, targets = self._answers(batch)
        return {"loss": answer_losses(logits, targets), **judge(logits, targets)}

    def judge(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Exact match and the fraction of an answer's tokens that are right, [B] each.

        Where a batch has `distance` [B], tokens back to the answer, the exact match also separately for
        distances `_within` the trained length and `_beyond` it.
        """
        judged = judge(*self._answers(batch))
        if "distance" in batch:
            within = batch["distance"] < self.recipe.data.sequence_length
            judged |= split_by_length("accuracy", judged["accuracy"], within)
        return judged

    def _answers(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits [N,V] of the N answer tokens of a batch, and its targets [B,T]."""
        targets = batch["targets"]
        return self.model(batch["tokens"], wanted=targets != NOT_SCORED), targets


def answer_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of each example's answer tokens, in nats, [B].

    Args:
        logits: [N,V], those of the answer tokens, one example after the other.
        targets: [B,T], -100 where none is.
    """
    scored = targets != NOT_SCORED
    return _by_example(token_losses(logits, targets[scored]), scored) / scored.sum(-1)


def judge(logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Correctness of the answers, [B] each; arguments as in `answer_losses`.

    `token_accuracy` is the fraction of an answer's tokens that are the most likely, given the true ones
    before them; `accuracy` is 1 where all of them are: then greedy decoding gives the answer.
    """
    scored = targets != NOT_SCORED
    right = _by_example((logits.argmax(-1) == targets[scored]).float(), scored)
    count = scored.sum(-1)
    return {"accuracy": (right == count).float(), "token_accuracy": right / count}


def _by_example(values: Tensor, scored: Tensor) -> Tensor:
    """Sums [B] of values [N] that belong to the positions of `scored` [B,T]."""
    # Filled in rather than added up by index: that gives the same sum on a GPU every time.
    return values.new_zeros(scored.shape).masked_scatter(scored, values).sum(-1)
