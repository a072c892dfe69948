"""A decoder and its training by hand: the least that plain PyTorch needs, without any position."""

from __future__ import annotations

import time
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


SIZES = {
    "tiny": Size(32, 2, 2, 16, 64, 2),
    "small": Size(128, 4, 4, 128, 4096, 16),
    "medium": Size(256, 6, 8, 512, 8192, 4),
    "124M": Size(768, 12, 12, 1024, 50304, 16),
    "124M-8k": Size(768, 12, 12, 8192, 50304, 2),
    "124M-32k": Size(768, 12, 12, 32768, 50304, 1),
}
"""The tiny one is for tests, the last three are for a GPU."""


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


def random_tokens(size: Size, device: torch.device) -> Iterator[Tensor]:
    """Batches of tokens [B,T+1]."""
    generator = torch.Generator().manual_seed(1)
    while True:
        yield torch.randint(size.vocabulary, (size.batch, size.length + 1), generator=generator).to(device)


def products(size: Size) -> float:
    """Operations of the matrix products in a step of the bare loop."""
    matrices = size.layers * 12 * size.width**2 + size.vocabulary * size.width
    attention = size.layers * 2 * size.length * size.width / 2
    return 6 * size.batch * size.length * (matrices + attention)


def matrix_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Operations per second of the fastest of some large products, on a CPU of such up to 0.1 s."""
    n, on_gpu = 8192 if device.type == "cuda" else 256, device.type == "cuda"
    while True:
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        seconds = []
        for _ in range(6 if on_gpu else 3):
            start = time.perf_counter()
            a @ b
            if on_gpu:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        if n >= 2048 or min(seconds) > 0.01:
            return 2 * n**3 / min(seconds)
        n *= 2
