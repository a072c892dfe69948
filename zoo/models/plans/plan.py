"""The interface of a plan, and the plan that runs another one for some of the queries at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from zoo.models.scores import ScoreTerms


class Plan(Protocol):
    """A way to compute attention.

    Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries and keys,
    V width of values. An encoding may change D, so it need not equal V.
    """

    def attend(
        self, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float
    ) -> Tensor:
        """The output [B,H,T,V]; zero for a query that may see no key."""


@dataclass(frozen=True)
class InBlocks:
    """`plan` for `rows` queries at a time, and the keys that any of them may see."""

    plan: Plan
    rows: int

    def attend(
        self, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float
    ) -> Tensor:
        if self.rows >= q_BHTD.shape[2]:
            return self.plan.attend(q_BHTD, k_BHSD, v_BHSV, scores, scale)
        out_BHTV = None
        for start in range(0, q_BHTD.shape[2], self.rows):
            block = slice(start, min(start + self.rows, q_BHTD.shape[2]))
            some = scores.queries(block.start, block.stop)
            seen = some.context.num_keys
            part_BHTV = self.plan.attend(
                q_BHTD[:, :, block], k_BHSD[:, :, :seen], v_BHSV[:, :, :seen], some, scale
            )
            # Collecting the parts in a list would keep the heap from reusing the memory of the tables.
            if out_BHTV is None:
                out_BHTV = part_BHTV.new_empty(*q_BHTD.shape[:3], part_BHTV.shape[-1])
            out_BHTV[:, :, block] = part_BHTV
        return out_BHTV
