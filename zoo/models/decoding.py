"""Writing on: tokens that follow a prompt, one after the other, with a cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from zoo.models.cache import Cache
from zoo.models.transformer import Decoder


@torch.no_grad()
def decode(
    model: Decoder,
    tokens: Tensor,
    max_new_tokens: int,
    keep: Tensor | None = None,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Iterator[Tensor]:
    """The tokens that a decoder in evaluation mode writes after a prompt, [B] at a time.

    Args:
        tokens: [B,T], the prompts, of different lengths if padded on the left.
        max_new_tokens: where to end at the latest; a caller may stop before.
        keep: [B,T], False at padding.
        temperature: what logits are divided by before a token is drawn; 0 takes the likeliest.
        generator: of the draws, on the device of the model; by default the global one.

    Raises:
        ValueError: where the encoding can take no more tokens, alone or with a cache.
    """
    cache = Cache(model.num_layers, room=tokens.shape[1] + max_new_tokens)
    for _ in range(max_new_tokens):
        logits = model.unembed(model.hidden(tokens, keep, cache)[:, -1])
        if temperature == 0:
            new = logits.argmax(-1)
        else:
            new = torch.multinomial((logits.float() / temperature).softmax(-1), 1, generator=generator)[:, 0]
        yield new
        tokens, keep = new[:, None], None
