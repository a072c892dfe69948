"""Arrays from the hooks of an encoding: vectors, angles, biases, and the scores of a random content.

The hooks are called as the transformer calls them, in evaluation mode and without gradients. Letters of
shapes are those of `zoo.encodings.base`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import EncodingStack, LayerEncodings
from zoo.models.scores import ScoreTerms

CONTENTS = 32
"""Random contents that a mean is over."""
NEAR_ZERO = 0.05


@dataclass(frozen=True, eq=False)
class Layer:
    """The encodings of one layer at positions 0 .. `length` - 1."""

    encodings: Sequence[Encoding]
    size: Size
    length: int

    @cached_property
    def view(self) -> LayerEncodings:
        return LayerEncodings(self.encodings)

    @cached_property
    def contexts(self) -> list[AttentionContext]:
        """The context of each encoding, at its own positions in evaluation."""
        ids = torch.arange(self.length)
        places = [one.positions(ids, 1) if one.uses("positions") else ids for one in self.encodings]
        return [AttentionContext(pos, pos, causal=self.size.causal, consecutive=pos is ids) for pos in places]

    def uses(self, *hooks: str) -> bool:
        return any(encoding.uses(hook) for encoding in self.encodings for hook in hooks)

    @property
    def head_groups(self) -> list[slice]:
        """Neighbouring heads that have the same encodings."""
        ends = {end for one in self.encodings for end in accumulate(one.head_groups)}
        return [slice(*pair) for pair in pairwise(sorted({0, self.size.num_heads, *ends}))]

    def vectors(self) -> np.ndarray:
        """The vectors that `embed` adds to the tokens, [T,E]."""
        return array(self.embedded(torch.zeros(1, self.length, self.size.d_model))[0])

    def biases(self) -> np.ndarray:
        """The bias of every head, query and key, [H,T,S], without a mask."""
        heads = self.size.num_heads
        table = sum(self.encodings[i].bias_table(self.contexts[i], heads) for i in self.view.biased)
        return array(table.reshape(-1, self.length, self.length).expand(heads, -1, -1))

    @cached_property
    def content(self) -> tuple[Tensor, Tensor, Tensor]:
        """Random vectors x [B,T,E], queries and keys [B,H,T,D]: N(0,1) in each dimension.

        Queries and keys have contents of their own; the vectors that are added for a position enter both.
        """
        generator = torch.Generator().manual_seed(0)
        shape = CONTENTS, self.length, self.size.d_model
        x, y = (torch.randn(shape, generator=generator) for _ in range(2))
        # Some encodings multiply the token vectors: the scaled ones have unit variance.
        scale = (self.embedded(x[:1]) - self.embedded(torch.zeros_like(x[:1]))).std() / x[:1].std()
        x, y = self.embedded(x / scale), self.embedded(y / scale)
        return x, self._heads(x, generator), self._heads(y, generator)

    def reading(self, x: Tensor) -> list[AttentionContext]:
        """The contexts with the features that each encoding reads from x [B,T,E]."""
        pairs = zip(self.contexts, self.view.read(x), strict=True)
        return [replace(context, features=one, shared={}) for context, one in pairs]

    def scores(self, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """The scaled scores of all pairs before any mask, [B,H,T,S]."""
        terms = ScoreTerms(self.view, self.reading(x), content=(q, k))
        turned_q, turned_k = self.view.rotate(q, k, terms.contexts)
        products = turned_q @ turned_k.transpose(-1, -2) * self.size.scale
        added = terms.added(turned_q, turned_k)
        return terms.logits(products if added is None else products + added, turned_q, turned_k)

    @cached_property
    def of_content(self) -> np.ndarray:
        """Attention [B,H,T,S] of the random contents."""
        logits = self.scores(*self.content).masked_fill(~self.contexts[0].allowed(), -torch.inf)
        return array(self.view.weights(logits, self.reading(self.content[0])))

    def angles(self, head: int) -> np.ndarray | None:
        """The angle of each rotated pair of dimensions of a head at each position, [T,P] in radians, fastest
        first.

        None where `rotate` turns no pairs. Each dimension is rotated alone; the output shows its partner.
        """
        width, ids = self.size.head_dim, torch.arange(self.length)
        read = self.reading(torch.zeros(width, self.length, self.size.d_model))
        contexts = [replace(context, q_pos=ids, k_pos=ids, consecutive=True) for context in read]
        alone = torch.eye(width)[:, None, None].expand(-1, self.size.num_heads, self.length, -1)
        out = self.view.rotate(alone, alone, contexts)[0][:, head].double()  # [D,T,W]
        if not out[..., width:].any():  # zeros, for the sake of a head that has become wider
            out = out[..., :width]
        if out.shape[-1] not in (width, 2 * width):
            return None
        pairs = [(i, i + width) for i in range(width)]  # each has become a complex number
        if out.shape[-1] == width:
            across = (out - out.permute(2, 1, 0)).abs().sum(1)
            pairs = [(i, int(j)) for i, j in enumerate(across.argmax(-1)) if i < j and across[i, j] > 1e-6]
        if not pairs:
            return None
        turns = torch.stack([torch.complex(out[i, :, i], out[i, :, j]) for i, j in pairs], -1)
        lengths = out[[i for i, _ in pairs]].norm(dim=-1).T
        if out.shape[-1] == width and ((lengths - turns.abs()).abs() > 1e-3 * turns.abs().max()).any():
            return None
        found = np.unwrap(np.angle((turns / turns[:1]).numpy()), axis=0)
        return found[:, np.argsort(-np.abs(found[-1]), kind="stable")]

    def embedded(self, x: Tensor) -> Tensor:
        for encoding, context in zip(self.encodings, self.contexts, strict=True):
            x = encoding.embed(x, context.q_pos)
        return x

    def _heads(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """[B,T,E] as [B,H,T,D]: the vectors split among the heads."""
        wide = self.size.num_heads * self.size.head_dim
        if x.shape[-1] != wide:
            x = torch.randn(*x.shape[:2], wide, generator=generator)
        return x.unflatten(-1, (self.size.num_heads, -1)).transpose(1, 2)


def draw_small_weights(stack: EncodingStack) -> bool:
    """Draw the weights that start near zero at random, from a fixed seed; returns whether there are any.

    Before training such weights do nearly nothing, and the figure would show nothing.
    """
    generator, drawn = torch.Generator().manual_seed(0), False
    embedding = any(slot[0].uses("embed") for slot in stack.slots)
    with torch.no_grad():
        for parameter in stack.parameters():
            if parameter.dim() > 1 and float(parameter.std()) < NEAR_ZERO:
                noise = torch.randn(parameter.shape, generator=generator)
                # A vector that is added to the tokens is as large as they are.
                parameter.copy_(noise if embedding else noise / parameter.shape[-1] ** 0.5)
                drawn = True
    return drawn


def array(x: Tensor) -> np.ndarray:
    return x.detach().float().numpy()
