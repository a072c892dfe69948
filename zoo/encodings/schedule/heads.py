"""An encoding for each group of heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size, shortest, softmax
from zoo.encodings.combined import COMBINED
from zoo.encodings.context import AttentionContext
from zoo.recipe.fields import Positive
from zoo.registry import register


@register("heads")
class Heads(Encoding):
    """Each group of heads has its own encoding, and nothing of the others.

    An encoding is built for the heads of its group: ALiBi in 4 of 8 heads has the slopes of a model with 4
    heads. NAPE is `of: [{name: alibi, slopes: harmonic}, none]`.

    Options:
        of: the encodings, that of the first heads first. One that changes position ids or adds to the token
            vectors acts on all heads and is refused: wrap `heads` in it (`{name: randomized, of: {name:
            heads, ...}}`), or combine them in a list (`[sinusoidal, {name: heads, ...}]`).
        counts: the number of heads of each, which add up to those of the model. null: equal shares.

    If one of the encodings has its own parameters in each layer, then all have. A rotation that widens
    queries and keys (pope) widens those of the other heads too, by zeros. All heads take the kernel that the
    most demanding encoding needs. Checked against each encoding by itself on its heads, with gradients.
    """

    formula = (
        r"a^{(h)} = a^{E_g}, \qquad g \text{ the group of head } h: \quad"
        r"n_1 + \dots + n_{g-1} < h \le n_1 + \dots + n_g"
    )
    paper = "Vasylenko et al. 2025 (arXiv:2506.16640), NAPE"
    family = "schedule"

    def __init__(self, size: Size, *, of: list[Encoding], counts: list[Positive] | None = None):
        for part in of:
            early = [hook for hook in ("positions", "embed") if part.uses(hook)]
            if early:
                raise ValueError(
                    f"{part.name!r} acts on all heads (it uses {early[0]}): take it out of `of`, and combine "
                    f"it by a list or as a wrapper"
                )
        super().__init__(size)
        self.of = nn.ModuleList(of)
        self.head_groups = _shares(size.num_heads, len(of), counts)
        starts = [0, *accumulate(self.head_groups)]
        self._heads = [slice(*ends) for ends in pairwise(starts)]
        with torch.no_grad():
            token = torch.zeros(1, 1, size.d_model)
            features = [part.read(token) if part.uses("read") else None for part in of]
        self._features = [None if read is None else read.shape[2:] for read in features]
        # A claim is about the model, and so must hold in every head.
        for declared, combine in COMBINED.items():
            setattr(self, declared, combine(of))

    @classmethod
    def size_inside(cls, size: Size, options: Mapping[str, Any], index: int) -> Size:
        shares = _shares(size.num_heads, len(options["of"]), options.get("counts"))
        first = size.first_head + sum(shares[:index])
        return replace(size, num_heads=shares[index], width_of_head=size.head_dim, first_head=first)

    @property
    def max_length(self) -> int | None:
        return shortest(self.of, "max_length")

    @property
    def max_cached_length(self) -> int | None:
        return shortest(self.of, "max_cached_length")

    @property
    def num_positions(self) -> int | None:
        return shortest(self.of, "num_positions")

    @property
    def heads_with_positions(self) -> tuple[bool, ...]:
        return tuple(reads for part in self.of for reads in part.heads_with_positions)

    def uses(self, hook: str) -> bool:
        return any(part.uses(hook) for part in self.of)

    def read(self, x: Tensor) -> Tensor | None:
        """The features of all encodings side by side, [B,T,F]."""
        features = [part.read(x) for part in self.of if part.uses("read")]
        flat = [read.reshape(*read.shape[:2], -1) for read in features if read is not None]
        return torch.cat(flat, -1) if flat else None

    def values(self, v: Tensor, context: AttentionContext) -> Tensor:
        return torch.cat(self._each("values", context, v, unused=lambda v: v), 1)

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        turned = self._each("rotate", context, q, k, unused=lambda q, k: (q, k))
        # Zeros change no product.
        width = max(q.shape[-1] for q, _ in turned)
        q, k = (
            torch.cat([F.pad(x, (0, width - x.shape[-1])) for x in groups], 1)
            for groups in zip(*turned, strict=True)
        )
        return q, k

    def bias(self, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        total: Tensor | float = 0.0
        for part, heads in zip(self.of, self._heads, strict=True):
            if part.uses("bias"):
                own = (head >= heads.start) & (head < heads.stop)
                index = (head - heads.start).clamp(0, heads.stop - heads.start - 1)
                total = torch.where(own, part.bias(index, q, k), total)
        return total

    def bias_table(self, context: AttentionContext, num_heads: int) -> Tensor:
        return self._joined(
            part.bias_table(own, part.size.num_heads) if part.uses("bias") else None
            for part, own in self._groups(context)
        )

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor | None:
        return self._joined(self._each("score", context, q, k))

    def key_score(self, k: Tensor, context: AttentionContext) -> Tensor | None:
        rows: list[Tensor | None] = []
        for part, own, k_group in self._groups(context, k):
            added = part.uses("bias") or part.uses("score")
            rows.append(part.key_score(k_group, own) if added else None)
            if added and rows[-1] is None:
                return None
        return self._joined(rows)

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        groups = self._each("logits", context, logits, q, k, unused=lambda logits, q, k: logits)
        return torch.cat(groups, 1)

    def weights(self, logits: Tensor, context: AttentionContext) -> Tensor:
        return torch.cat(self._each("weights", context, logits, unused=softmax), 1)

    def value(self, weights: Tensor, context: AttentionContext) -> Tensor | None:
        return self._joined(self._each("value", context, weights))

    def output(self, out: Tensor, context: AttentionContext) -> Tensor:
        return torch.cat(self._each("output", context, out, unused=lambda out: out), 1)

    def _each(
        self,
        hook: str,
        context: AttentionContext,
        *tensors: Tensor,
        unused: Callable[..., Any] = lambda *_: None,
    ) -> list[Any]:
        """The results of a hook of tensors [B,H,...], group by group; `unused` where it does nothing."""
        return [
            getattr(part, hook)(*own_heads, own) if part.uses(hook) else unused(*own_heads)
            for part, own, *own_heads in self._groups(context, *tensors)
        ]

    def _groups(self, context: AttentionContext, *tensors: Tensor) -> list[tuple[Any, ...]]:
        """Each encoding with its own context, and of each tensor [B,H,...] its heads."""
        widths = [0 if shape is None else prod(shape) for shape in self._features]
        read = [None] * len(self.of) if context.features is None else context.features.split(widths, -1)
        groups = []
        for index, (part, heads, shape) in enumerate(zip(self.of, self._heads, self._features, strict=True)):
            features = None if read[index] is None or shape is None else read[index].unflatten(-1, shape)
            own = replace(context, features=features, group=(*context.group, index))
            groups.append((part, own, *(x[:, heads] for x in tensors)))
        return groups

    def _joined(self, tables: Iterable[Tensor | None]) -> Tensor | None:
        """One table of all heads from those of the groups, [h,...] or [B,h,...]; zeros where one has none."""
        tables = list(tables)
        made = [table for table in tables if table is not None]
        if not made:
            return None
        *batch, _, rows, columns = torch.broadcast_shapes(*(table[..., :1, :, :].shape for table in made))
        whole = [
            (made[0].new_zeros(1, 1, 1) if table is None else table).expand(*batch, heads, rows, columns)
            for table, heads in zip(tables, self.head_groups, strict=True)
        ]
        return torch.cat(whole, -3)


def _shares(heads: int, groups: int, counts: Sequence[int] | None) -> tuple[int, ...]:
    """The number of heads of each group. Raises ValueError where they do not add up to those of the model."""
    if counts is None:
        if heads % groups:
            raise ValueError(f"{heads} heads have no equal shares for {groups} encodings: give `counts`")
        return (heads // groups,) * groups
    if len(counts) != groups or sum(counts) != heads:
        raise ValueError(
            f"counts {list(counts)} share out {sum(counts)} heads among {len(counts)} encodings, "
            f"but there are {heads} heads and {groups} encodings"
        )
    return tuple(counts)
