"""The subject of a law: one encoding with its options, or a list of them, in a decoder or an encoder."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from zoo import registry
from zoo.encodings.base import Encoding, Size
from zoo.encodings.stack import EncodingStack
from zoo.models.transformer import Decoder, Encoder, Transformer
from zoo.recipe.encoding import encodings_in
from zoo.recipe.schema import ModelConfig

Kind = Literal["decoder", "encoder"]
KINDS: tuple[Kind, ...] = ("decoder", "encoder")

VOCABULARY, LENGTH = 29, 16
"""Of the small models: token ids, and the trained length."""
WIDTH, HEADS, LAYERS = 48, 6, 2


@dataclass(frozen=True, eq=False)
class Subject:
    """An encoding in use. Its models are small; see `draw_large_weights`."""

    spec: Any
    """A name, a mapping of a name and its options, or a list of such."""
    kind: Kind = "decoder"
    label: str = ""
    is_default: bool = True
    """No option is given."""
    strict: bool = True
    """Must meet the zoo's own standard: a paper, every option described."""
    kinds: tuple[Kind, ...] = field(default=KINDS)
    """The kinds of model that the encoding declares."""
    config: dict[str, Any] = field(default_factory=dict)
    """Further fields of the `ModelConfig` of its models, unless a law sets them."""
    length: int = LENGTH
    """The trained length of its models, in tokens."""

    def __str__(self) -> str:
        return f"{self.label} {self.kind}"

    @cached_property
    def stack(self) -> EncodingStack:
        """The encodings without a model, in evaluation mode."""
        return EncodingStack(self.spec, self.size()).eval()

    @property
    def encodings(self) -> list[Encoding]:
        return [slot[0] for slot in self.stack.slots]

    @property
    def descriptions(self) -> list[registry.Description]:
        """Of the encodings themselves, not of those that they wrap."""
        specs = self.spec if isinstance(self.spec, list) else [self.spec]
        return [
            registry.encodings.describe(spec if isinstance(spec, str) else spec["name"]) for spec in specs
        ]

    def line_of(self, error: BaseException) -> str:
        """File and line of the last code of a plugin that ran before an error; "" where none did."""
        return line_of(error, [registry.encodings.describe(name) for name in names_in(self.spec)])

    @property
    def relative(self) -> bool:
        return all(encoding.relative for encoding in self.encodings)

    @property
    def only_evaluates(self) -> bool:
        return any(description.replaces for description in self.descriptions)

    def size(self, **changes: Any) -> Size:
        """The size that a single instance is built for."""
        fields = {
            "d_model": WIDTH,
            "num_heads": HEADS,
            "num_layers": LAYERS,
            "length": self.length,
            "layer": 0,
        }
        own = {name: value for name, value in self.config.items() if name in fields}
        return Size(**{**fields, **own, "causal": self.kind == "decoder", **changes})

    def model(
        self,
        *,
        seed: int = 0,
        length: int | None = None,
        large_weights: bool = True,
        head: Literal["vocabulary", "pointer"] = "vocabulary",
        **config: Any,
    ) -> Transformer:
        """A small model around the encoding, in evaluation mode; `config` is for its `ModelConfig`."""
        config = {**self.config, **config}
        length = length or self.length
        return small_model(
            self.spec, self.kind, seed=seed, length=length, large_weights=large_weights, head=head, **config
        )

    def at_most(self, tokens: int) -> int:
        """So many tokens, or as many as its models can take."""
        limit = self.stack.max_length
        return tokens if limit is None else min(tokens, limit)

    def tokens(self, batch: int, length: int) -> Tensor:
        return some_tokens(batch, length)


def small_model(
    spec: Any,
    kind: Kind = "decoder",
    *,
    vocab_size: int = VOCABULARY,
    length: int = LENGTH,
    head: Literal["vocabulary", "pointer"] = "vocabulary",
    seed: int = 0,
    large_weights: bool = True,
    **config: Any,
) -> Transformer:
    """A small model in evaluation mode; `large_weights` replaces its initial weights by larger ones."""
    fields = {"d_model": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, **config}
    made = {"decoder": Decoder, "encoder": Encoder}[kind](
        ModelConfig(kind=kind, encoding=spec, **fields), vocab_size, length, head, seed
    )
    if large_weights:
        draw_large_weights(made, seed)
    return made.eval()


def some_tokens(batch: int, length: int, vocab_size: int = VOCABULARY) -> Tensor:
    """Token ids [batch, length], always the same for the same length."""
    return torch.randint(vocab_size, (batch, length), generator=torch.Generator().manual_seed(length))


def keep_of(padding: tuple[int, ...] | None, length: int) -> Tensor | None:
    """False at so many tokens at the beginning of each sequence."""
    return None if padding is None else torch.arange(length) >= torch.tensor(padding)[:, None]


def draw_large_weights(model: nn.Module, seed: int) -> None:
    """Weights that make attention sharp, so that every hook shows in the outputs: N(0, 0.02) hides faults."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:
                parameter += 0.1 * noise
            else:
                parameter.copy_(noise / parameter.shape[1] ** 0.5)


def kinds_of(spec: Any) -> tuple[Kind, ...]:
    """What an encoding, and every one that it wraps, is for."""
    named = [registry.encodings.describe(name) for name in names_in(spec)]
    return tuple(kind for kind in KINDS if all(getattr(one, kind) for one in named))


def names_in(spec: Any) -> Iterator[str]:
    """The names of an encoding, or a list of them, and of those that are wrapped."""
    return (name for _, name in encodings_in(_as_mapping(spec), ()))


def line_of(error: BaseException, descriptions: list[registry.Description]) -> str:
    """As `Subject.line_of`, of the encodings that are no part of the zoo."""
    files = {str(one.file) for one in descriptions if not one.builtin}
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{one.filename}:{one.lineno}" for one in frames if str(Path(one.filename).resolve()) in files]
    return lines[-1] if lines else ""


def _as_mapping(spec: Any) -> Any:
    if isinstance(spec, list | tuple):
        return [_as_mapping(part) for part in spec]
    if isinstance(spec, str):
        return {"name": spec}
    wrapped = {
        option.name: _as_mapping(spec[option.name])
        for option in registry.encodings.describe(spec["name"]).options
        if registry.holds_wrapped(option.annotation) and spec.get(option.name) is not None
    }
    return {**spec, **wrapped}
