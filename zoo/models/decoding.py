"""Writing on: tokens that follow a prompt, one after the other, with a cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.errors import InputError, Problem
from zoo.models.cache import Cache
from zoo.models.transformer import Decoder


@dataclass(frozen=True)
class Sampling:
    """The way in which a token is drawn from logits.

    Args:
        temperature: what logits are divided by; 0 takes the likeliest token.
        top_k: only the k likeliest tokens may be drawn.
        top_p: only the likeliest tokens whose probabilities first sum to p may be drawn (nucleus sampling,
            Holtzman et al. 2020, arXiv:1904.09751); after the temperature and top_k, as in `transformers`.

    Raises:
        InputError: a number out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        ranges = {"temperature": (0, float("inf")), "top_k": (1, float("inf")), "top_p": (0, 1)}
        problems = []
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                problems.append(Problem(f"{value!r}: from {least} to {most}", key=name))
        if problems:
            raise InputError(problems)

    def draw(self, logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Token ids [B] from logits [B,V]; the generator is on the device of the logits."""
        if self.temperature == 0:
            return logits.argmax(-1)
        return torch.multinomial(self.probabilities(logits), 1, generator=generator)[:, 0]

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities of the draw, [B,V] in float32; only for a temperature above 0."""
        logits = logits.float()
        # The largest first: a temperature near 0 would take the others to infinity with it.
        logits = (logits - logits.amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k).values[..., -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        probabilities = logits.softmax(-1)
        if self.top_p < 1:
            ordered, order = probabilities.sort(-1, descending=True)
            within = ordered.cumsum(-1) - ordered < self.top_p
            within[..., 0] = True  # however small p is
            probabilities = probabilities * torch.empty_like(within).scatter(-1, order, within)
            probabilities = probabilities / probabilities.sum(-1, keepdim=True)
        return probabilities


GREEDY = Sampling(temperature=0.0)


@torch.no_grad()
def decode(
    model: Decoder,
    tokens: Tensor,
    max_new_tokens: int,
    keep: Tensor | None = None,
    sampling: Sampling = GREEDY,
    generator: torch.Generator | None = None,
) -> Iterator[Tensor]:
    """The tokens that a decoder in evaluation mode writes after a prompt, [B] at a time.

    With a cache, as long as the encoding allows one: where positions depend on the full length
    (`max_cached_length`), every step from there on reads all tokens anew.

    Args:
        tokens: [B,T], the prompts, of different lengths if padded on the left.
        max_new_tokens: where to end at the latest; a caller may stop before.
        keep: [B,T], False at padding.
        sampling: how a token is drawn; by default the likeliest is taken.
        generator: of the draws, on the device of the model; by default the global one.

    Raises:
        ValueError: where the encoding can take no more tokens.
    """
    cached = model.encoding.max_cached_length
    cache: Cache | None = Cache(model.num_layers, room=tokens.shape[1] + max_new_tokens)
    every, new = tokens, tokens
    for step in range(max_new_tokens):
        if cached is not None and every.shape[1] > cached:
            cache = None
        if cache is None:
            logits = model.unembed(model.hidden(every, keep)[:, -1])
        else:
            logits = model.unembed(model.hidden(new, keep if step == 0 else None, cache)[:, -1])
        drawn = sampling.draw(logits, generator)
        yield drawn
        new = drawn[:, None]
        every = torch.cat((every, new), 1)
        keep = None if keep is None else torch.cat((keep, torch.ones_like(new, dtype=torch.bool)), 1)
