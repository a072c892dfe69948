"""The encodings of one model, as its layers see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from zoo.encodings import registry
from zoo.encodings.base import Encoding, Size, Span
from zoo.errors import InputError
from zoo.seeds import seed_of

Spec = dict[str, Any]
"""{"name": ..., option: ...}, as in a resolved recipe. An option that holds an encoding is itself such a
dict, one that holds several a list of them."""


def build_encoding(spec: Spec | str, size: Size) -> Encoding:
    """The encoding that a recipe asks for.

    Raises:
        InputError: unknown name, or options that the encoding cannot take.
    """
    spec = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = spec.pop("name")
    for option in registry.describe(name).options:
        if option.name in spec and registry.holds_wrapped(option.annotation):
            several = registry.holds_several(option.annotation)
            if isinstance(spec[option.name], (list, tuple)) and not several:
                raise InputError(f"encoding {name!r}: {option.name} holds one encoding, not a list")
            spec[option.name] = _build_wrapped(spec[option.name], size)
    try:
        return registry.load(name)(size, **spec)
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(f"encoding {name!r}: {error}") from error


def _build_wrapped(value: Spec | str | Sequence[Spec] | None, size: Size) -> Any:
    if isinstance(value, (dict, str)):
        return build_encoding(value, size)
    return None if value is None else [build_encoding(spec, size) for spec in value]


class EncodingStack(nn.Module):
    """Builds a model's encodings: one instance for all layers, or one for each where an encoding asks for it.

    `view(layer)` is what a layer sees; `front` is what the token vectors meet before the first layer.
    """

    def __init__(self, specs: Spec | Sequence[Spec], size: Size, seed: int = 0):
        super().__init__()
        self.slots = nn.ModuleList()
        for index, spec in enumerate([specs] if isinstance(specs, (dict, str)) else specs):
            first = _seeded(spec, replace(size, layer=0), seed_of(seed, "encoding", index, 0))
            slot = [first]
            if first.per_layer:
                slot += [
                    _seeded(spec, replace(size, layer=layer), seed_of(seed, "encoding", index, layer))
                    for layer in range(1, size.num_layers)
                ]
            self.slots.append(nn.ModuleList(slot))

    @property
    def front(self) -> View:
        return self.view(0)

    def view(self, layer: int) -> View:
        return View([slot[layer if len(slot) > 1 else 0] for slot in self.slots])

    @property
    def max_length(self) -> int | None:
        limits = [e.max_length for e in self.front.encodings if e.max_length is not None]
        return min(limits, default=None)


def _seeded(spec: Spec, size: Size, seed: int) -> Encoding:
    """An encoding whose random start depends on the seed and its place in the model, and on nothing else."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build_encoding(spec, size)


class View:
    """The encodings of one layer, taken together: each hook is the fold over theirs.

    `read` gives one entry for each encoding; the hooks that come after it take those entries back.
    """

    def __init__(self, encodings: Sequence[Encoding]):
        self.encodings = list(encodings)
        self.biased = self._using("bias")
        self.scored = self._using("score")
        self.reshaped = self._using("logits")
        self.valued = self._using("value")
        self.moved = self._using("positions")

    def _using(self, hook: str) -> list[int]:
        return [i for i, encoding in enumerate(self.encodings) if encoding.uses(hook)]

    def positions(self, ids: Tensor, batch: int) -> Tensor:
        for encoding in self.encodings:
            ids = encoding.positions(ids, batch)
        return ids

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        for encoding in self.encodings:
            x = encoding.embed(x, pos)
        return x

    def read(self, x: Tensor) -> list[Tensor | None]:
        return [encoding.read(x) for encoding in self.encodings]

    def rotate(self, q: Tensor, k: Tensor, spans: Sequence[Span]) -> tuple[Tensor, Tensor]:
        for encoding, span in zip(self.encodings, spans, strict=True):
            q, k = encoding.rotate(q, k, span)
        return q, k
