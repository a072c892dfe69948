"""A decoder and its training by hand: the least that plain PyTorch needs, without any position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLIP = 1.0


@dataclass(frozen=True)
class Size:
    """Width, layers and heads of a model, tokens of a sequence and of the vocabulary, and sequences."""

    width: int
    layers: int
    heads: int
    length: int
    vocabulary: int
    batch: int

    def __str__(self) -> str:
        return (
            f"width {self.width}, {self.layers} layers, {self.heads} heads, length {self.length}, vocabulary "
            f"{self.vocabulary}, batch {self.batch}"
        )


class Block(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.heads, width = size.heads, size.width
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Bare(nn.Module):
    """The loss of tokens [B,T+1], each from those before it."""

    def __init__(self, size: Size):
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = F.linear(self.norm(self.blocks(self.tokens(tokens[:, :-1]))), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def train(
    model: nn.Module, loss_of: Callable[[Tensor], Tensor], batches: Iterator[Tensor], bf16: bool
) -> Iterator[Tensor]:
    """Train without end, in bf16 by autocast where asked; gives the loss of each step, once it is done."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for tokens in batches:
        with torch.autocast(tokens.device.type, torch.bfloat16) if bf16 else nullcontext():
            loss = loss_of(tokens)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        yield loss
