"""Bilevel positional encoding (BiPE)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.wrapper import Wrapper, check_reads_positions
from zoo.recipe.fields import Count, Positive
from zoo.registry import register


@register("bipe")
class BiPE(Wrapper):
    """A learned vector for the place inside a segment, and another encoding of the number of the segment.

    A segment ends with a separator, which belongs to it. The vector of a token's place, counted from 0, is
    added to the token vector; `of` sees the number of its segment as its position, so that all tokens of a
    segment stand together.

    Options:
        of: a relative encoding of the segment numbers; `rope` or `alibi` in the paper.
        separators: the token ids that end a segment, of the tokenizer in use; by default the mark that asks
            for the answer of a generated task. The authors take those of a full stop and a newline.
        table_length: places that have a vector; tokens further on in their segment share the last.
        stride: the distance of two neighbouring segments for `of`, in tokens; 1 for rope and 96 for alibi in
            the authors' code.

    Position ids are not read, only tokens. Drawn from N(0, 0.02). Checked against a loop over the segments,
    and once against `get_bilevel_ids` of the authors' code (github.com/zhenyuhe00/BiPE), whose ids are equal.
    """

    formula = (
        r"x_i \to x_i + P_{m_i},\qquad p_i = g_i \text{ for the encoding of segments:}"
        r"\quad \text{token } i \text{ has place } m_i \text{ in segment } g_i"
    )
    paper = "He et al. 2024 (arXiv:2401.16421)"
    family = "position ids"

    def __init__(
        self,
        size: Size,
        *,
        of: Encoding,
        separators: Annotated[tuple[Count, ...], Field(min_length=1)] = (2,),
        table_length: Positive = 1024,
        stride: Positive = 1,
    ):
        super().__init__(size, of)
        check_reads_positions(of, "it would not see the segments")
        if not of.relative or of.uses("embed") or of.uses("positions"):
            raise ValueError(f"{of.name!r} is not relative, or has position ids of its own: take rope")
        self.extrapolates = "yes"
        self.reads_positions = False
        self.reads_tokens = self.integer_positions = True
        # Positions hold both ids: a function of the difference of segments is not one of theirs.
        self.distance_only = False
        self.rotation_is_final = of.rotation_is_final
        self.position_key = "segments"
        self.table_length, self.stride = table_length, stride
        self.register_buffer("separators", torch.tensor(separators), persistent=False)
        # Layers that have an instance each share the vectors of the first.
        rows = None if size.layer else nn.Parameter(0.02 * torch.randn(table_length, size.d_model))
        self.register_parameter("table", rows)

    def uses(self, hook: str) -> bool:
        return hook in ("positions", "embed") or self.of.uses(hook)

    def positions(self, ids: Tensor, batch: int, tokens: Tensor | None = None) -> Tensor:
        """The number of the segment times `table_length`, and the place inside it."""
        if tokens is None:
            return ids  # as if a segment ended with each row of the table
        before = F.pad(tokens[:, :-1], (1, 0), value=-1)
        follows = torch.isin(before, self.separators)
        row = torch.arange(tokens.shape[1], device=ids.device)
        place = row - row.masked_fill(~(follows | (before < 0)), 0).cummax(-1).values
        both = follows.cumsum(-1) * self.table_length + place.clamp(max=self.table_length - 1)
        return both[:, -ids.shape[-1] :]

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.table[(pos % self.table_length).long()].to(x.dtype)

    def bias(self, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.of.bias(head, self._segment(q), self._segment(k))

    def bias_table(self, context: AttentionContext, num_heads: int) -> Tensor:
        return self.of.bias_table(self._of_segments(context), num_heads)

    def _segment(self, pos: Tensor) -> Tensor:
        return pos // self.table_length * self.stride

    def _of_segments(self, context: AttentionContext) -> AttentionContext:
        """The context whose positions are the segments, the same tensors in every layer."""
        q_pos, k_pos = (
            context.once("segments", pos, self._segment) for pos in (context.q_pos, context.k_pos)
        )
        return replace(context, q_pos=q_pos, k_pos=k_pos, consecutive=False)


def _at_segments(hook: str) -> Callable[..., Any]:
    def call(self: BiPE, *given: Any) -> Any:
        *tensors, context = given
        return getattr(self.of, hook)(*tensors, self._of_segments(context))

    return call


for _hook in ("values", "rotate", "score", "key_score", "logits", "weights", "value", "output"):
    setattr(BiPE, _hook, _at_segments(_hook))
