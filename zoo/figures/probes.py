"""What the hooks of an encoding give, as arrays: vectors, angles, biases, and scores of a fixed content.

Everything is asked of the hooks as the transformer asks them, in evaluation mode and without gradients, so
that pictures show what trains. Letters of shapes are those of `zoo.encodings.base`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.encodings.base import AttentionContext, Encoding, Size
from zoo.encodings.stack import EncodingStack, LayerEncodings

CONTENTS, COPIES = 32, 64
"""How many contents are drawn at random for what depends on content, and for what two copies score."""
NEAR_ZERO = 0.05
"""Weights that start this small are drawn at random for pictures: what they will come to is not there yet."""


@dataclass(frozen=True, eq=False)
class Probe:
    """The encodings of one layer on 0 .. `length` - 1."""

    encodings: Sequence[Encoding]
    size: Size
    length: int

    @cached_property
    def view(self) -> LayerEncodings:
        return LayerEncodings(self.encodings)

    @cached_property
    def contexts(self) -> list[AttentionContext]:
        """Of each encoding, at the positions that it gives in evaluation."""
        ids = torch.arange(self.length)
        made = []
        for encoding in self.encodings:
            pos = encoding.positions(ids, 1) if encoding.uses("positions") else ids
            made.append(AttentionContext(pos, pos, causal=self.size.causal, consecutive=pos is ids))
        return made

    def uses(self, hook: str) -> bool:
        return any(encoding.uses(hook) for encoding in self.encodings)

    def vectors(self) -> np.ndarray:
        """What `embed` adds to a token vector of zeros, [T,E]."""
        return _array(self._embedded(torch.zeros(1, self.length, self.size.d_model))[0])

    def biases(self) -> np.ndarray:
        """The bias of every head, query and key, [H,T,S], without a mask."""
        total = torch.zeros(self.size.num_heads, self.length, self.length)
        for encoding, context in zip(self.encodings, self.contexts, strict=True):
            if encoding.uses("bias"):
                table = encoding.bias_table(context, self.size.num_heads)
                total = total + (table[0] if table.dim() == 4 else table)
        return _array(total)

    def drawn_positions(self, draws: int = 4) -> np.ndarray:
        """The positions of the tokens in so many steps of training, [N,T]."""
        ids, made = torch.arange(self.length), []
        for encoding in self.encodings:
            encoding.train()
            try:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(0)
                    if encoding.uses("positions") and not made:
                        made = [encoding.positions(ids, 1).reshape(-1, self.length)[0] for _ in range(draws)]
            finally:
                encoding.eval()
        return _array(torch.stack(made)) if made else np.empty((0, self.length))

    @cached_property
    def content(self) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors x [B,T,E], queries and keys [B,H,T,D] of tokens drawn at random: N(0,1) in each dimension.

        Queries and keys have contents of their own; the vectors that are added for a position enter both as
        they are.
        """
        generator = torch.Generator().manual_seed(0)
        shape = CONTENTS, self.length, self.size.d_model
        x, y = (torch.randn(shape, generator=generator) for _ in range(2))
        # Some scale the token vectors, which are then small ones: what arrives has unit variance.
        zero = self._embedded(torch.zeros_like(x[:1]))
        scale = (self._embedded(x[:1]) - zero).std() / x[:1].std()
        x, y = self._embedded(x / scale), self._embedded(y / scale)
        return x, self._heads(x, generator), self._heads(y, generator)

    def scores(self, x: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Of contents: the scaled scores of all pairs before any mask, [B,H,T,S], and what of them the hooks
        that depend on content have added or changed."""
        read = self.view.read(x)
        contexts = [
            replace(context, features=one, shared={})
            for context, one in zip(self.contexts, read, strict=True)
        ]
        turned_q, turned_k = self.view.rotate(q, k, contexts)
        plain = turned_q @ turned_k.transpose(-1, -2) * self.size.head_dim**-0.5
        for i in self.view.biased:
            plain = plain + self.encodings[i].bias_table(contexts[i], self.size.num_heads)
        logits = plain
        for i in self.view.scored:
            term = self.encodings[i].score(q, k, contexts[i])
            logits = logits if term is None else logits + term
        for i in self.view.reshaped:
            logits = self.encodings[i].logits(logits, q, k, contexts[i])
        return logits, logits - plain

    @cached_property
    def of_content(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the drawn contents: attention [B,H,T,S], and what content-dependent hooks add to the scores."""
        logits, added = self.scores(*self.content)
        allowed = self.contexts[0].allowed()
        weights = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
        return _array(weights), _array(added.expand_as(logits).masked_fill(~allowed, torch.nan))

    def copies(self) -> np.ndarray:
        """How much the last token scores with its own copy k tokens before, as a share of k = 0: [N,T].

        The copies are tokens drawn at random, and so is what an encoding reads of those between; N is the
        number of tokens times the heads.
        """
        shape = COPIES, self.size.num_heads, 1, self.size.head_dim
        generator = torch.Generator().manual_seed(1)
        token = torch.randn(shape, generator=generator).expand(-1, -1, self.length, -1)
        x = torch.randn(COPIES, self.length, self.size.d_model, generator=generator)
        last = self.scores(x, token, token)[0][:, :, -1].flip(-1).flatten(0, 1)
        return _array(last / last[:, :1])

    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """By how much `rotate` makes queries and keys longer at each position: [T] each."""
        x, q, k = (one[:1] for one in self.content)
        q, k = torch.ones_like(q), torch.ones_like(k)
        contexts = [
            replace(s, features=r, shared={}) for s, r in zip(self.contexts, self.view.read(x), strict=True)
        ]
        turned = self.view.rotate(q, k, contexts)
        after, before = (_array(one.norm(dim=-1)[0, 0]) for one in turned), _array(q.norm(dim=-1)[0, 0])
        return tuple(one / before for one in after)

    def angles(self) -> np.ndarray | None:
        """The angle of each rotated pair of dimensions at each position, in radians: [T,P], the fastest
        first, as a continuous function of the position. None where `rotate` turns no pairs.

        A dimension is put in alone; what comes out has it turned towards its partner.
        """
        width, length = self.size.head_dim, self.length
        plain = torch.arange(length)
        x = torch.zeros(width, length, self.size.d_model)
        read = self.view.read(x)
        contexts = [
            replace(context, q_pos=plain, k_pos=plain, consecutive=True, features=one, shared={})
            for context, one in zip(self.contexts, read, strict=True)
        ]
        alone = torch.eye(width)[:, None, None].expand(-1, self.size.num_heads, length, -1)
        out = self.view.rotate(alone, alone, contexts)[0][:, 0].double()  # [D,T,W]
        if out.shape[-1] == 2 * width:
            # Each dimension has become a complex number: its parts are in the two halves, or neighbours.
            halves = torch.complex(out[..., :width], out[..., width:])
            pairs = torch.complex(out[..., 0::2], out[..., 1::2])
            best = min((halves, pairs), key=lambda z: float((z.abs() - z.abs()[:, :1]).abs().mean()))
            turns = torch.stack([best[i, :, i] for i in range(width)], -1)
        elif out.shape[-1] == width:
            across = (out - out.permute(2, 1, 0)).abs().sum(1)
            partner = across.argmax(-1)
            first = [i for i in range(width) if across[i, partner[i]] > 1e-6 and i < partner[i]]
            if not first:
                return None
            turns = torch.stack([torch.complex(out[i, :, i], out[i, :, partner[i]]) for i in first], -1)
            if ((out[first].norm(dim=-1).T - turns.abs()).abs() > 1e-3 * turns.abs().max()).any():
                return None
        else:
            return None
        found = np.unwrap(np.angle((turns / turns[:1]).numpy()), axis=0)
        return found[:, np.argsort(-np.abs(found[-1]), kind="stable")]

    def values(self) -> np.ndarray:
        """The length of what `value` adds to a head's output for one key at each distance, [H,T]."""
        total: Any = 0
        weights = torch.eye(self.length).flip(0)[:, None, None].expand(-1, self.size.num_heads, 1, -1)
        for i in self.view.valued:
            context = self.contexts[i].queries(self.length - 1, self.length)
            term = self.encodings[i].value(weights, context)
            total = total if term is None else total + term
        if isinstance(total, int):
            return np.zeros((self.size.num_heads, self.length))
        return _array(total.expand(-1, self.size.num_heads, -1, -1)[:, :, 0].norm(dim=-1).T)

    def _embedded(self, x: Tensor) -> Tensor:
        for encoding, context in zip(self.encodings, self.contexts, strict=True):
            x = encoding.embed(x, context.q_pos)
        return x

    def _heads(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """[B,T,E] as [B,H,T,D]: the vectors split among the heads."""
        wide = self.size.num_heads * self.size.head_dim
        if x.shape[-1] != wide:
            x = torch.randn(*x.shape[:2], wide, generator=generator)
        return x.unflatten(-1, (self.size.num_heads, -1)).transpose(1, 2)


def draw_small_weights(stack: nn.Module) -> bool:
    """Draw at random, always the same, the weights that start near zero; gives whether there are any.

    Before training they are nearly nothing, and so would be the picture.
    """
    generator, drawn = torch.Generator().manual_seed(0), False
    embedding = isinstance(stack, EncodingStack) and any(slot[0].uses("embed") for slot in stack.slots)
    with torch.no_grad():
        for parameter in stack.parameters():
            if parameter.dim() > 1 and float(parameter.std()) < NEAR_ZERO:
                noise = torch.randn(parameter.shape, generator=generator)
                # As large as the token vectors that it is added to.
                parameter.copy_(noise if embedding else noise / parameter.shape[-1] ** 0.5)
                drawn = True
    return drawn


def _array(x: Tensor) -> np.ndarray:
    return x.detach().float().numpy()
