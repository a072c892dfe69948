"""Subjects of the laws of encodings: an encoding, or a list of them, in a small decoder or encoder."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn

from zoo import registry
from zoo.contract.law import only
from zoo.encodings.base import Encoding, Size
from zoo.encodings.likely_cause import explained
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError
from zoo.models.transformer import Decoder, Encoder, Transformer
from zoo.recipe.encoding import encodings_in
from zoo.recipe.schema import ModelConfig
from zoo.registry import Description, Option

Kind = Literal["decoder", "encoder"]
KINDS: tuple[Kind, ...] = ("decoder", "encoder")

VOCABULARY, LENGTH = 29, 17
"""Number of token ids, and the trained length of the small models."""
WIDTH, HEADS, LAYERS = 48, 6, 2
DEEPEST = 32
"""The most layers of a model for an encoding that refuses fewer."""

INSIDE = ("sinusoidal", "rope", "t5", "alibi", "shaw")
"""Encodings that a wrapper is tried around: one of each family, and a bias without parameters too."""


@dataclass(frozen=True, eq=False)
class Subject:
    """An encoding in small models, whose weights are large (see `draw_large_weights`)."""

    spec: Any
    """A name, a mapping of a name and options, or a list of both."""
    kind: Kind = "decoder"
    is_default: bool = True
    """No option is given."""
    config: dict[str, Any] = field(default_factory=dict)
    """Further fields of the `ModelConfig` of its models, unless a law sets them."""
    length: int = LENGTH
    """The trained length of its models, in tokens."""
    longest: int = 4 * LENGTH
    """The longest sequence that the laws try, in tokens."""

    @property
    def label(self) -> str:
        return " ".join([_label(self.spec), *(f"{key}={value}" for key, value in self.config.items())])

    def __str__(self) -> str:
        return f"{self.label} {self.kind}"

    @cached_property
    def stack(self) -> EncodingStack:
        """The encodings without a model, in evaluation mode."""
        return EncodingStack(self.spec, self.size()).eval()

    @property
    def refusal(self) -> str | None:
        """The InputError with which the encoding refuses its options; None if it raises none."""
        try:
            _ = self.stack
        except InputError as error:
            return explained(error).removeprefix("InputError: ")
        except (Exception, SystemExit):  # the first law reports it
            return None
        return None

    @property
    def encodings(self) -> list[Encoding]:
        return [slot[0] for slot in self.stack.slots]

    @property
    def descriptions(self) -> list[Description]:
        """Descriptions of the encodings themselves, without the wrapped ones."""
        specs = self.spec if isinstance(self.spec, list) else [self.spec]
        return [registry.encodings.describe(one if isinstance(one, str) else one["name"]) for one in specs]

    @property
    def plugins(self) -> list[Description]:
        """Descriptions of the encodings outside the zoo, wrapped ones included."""
        return [one for one in descriptions_in(self.spec) if not one.builtin]

    @property
    def relative(self) -> bool:
        return all(encoding.relative for encoding in self.encodings)

    @property
    def takes_sinks(self) -> bool:
        """Whether its models may have sink tokens: a decoder, and no output depends on positions."""
        by_position = any(one.uses("output") and one.reads_positions for one in self.encodings)
        return self.kind == "decoder" and not by_position

    def size(self, **changes: Any) -> Size:
        """The size that a single instance is built for."""
        own = {
            "d_model": self.config.get("d_model", WIDTH),
            "num_heads": self.config.get("num_heads", HEADS),
            "num_layers": self.config.get("num_layers", LAYERS),
            "length": self.length,
        }
        return Size(**{**own, "layer": 0, "causal": self.kind == "decoder", **changes})

    def model(self, **changes: Any) -> Transformer:
        """A small model around the encoding; the arguments are those of `small_model`."""
        return small_model(self.spec, self.kind, **{"length": self.length, **self.config, **changes})

    def windows(self, window: int) -> list[dict[str, Any]]:
        """Settings of a model: without a window, with one, and in a decoder with sink tokens before it."""
        sinks = [{"window": window, "sink_tokens": 2}] if self.takes_sinks else []
        return [{}, {"window": window}, *sinks]

    def tokens(self, batch: int, length: int) -> Tensor:
        """Token ids [batch, length], at most the longest sequence that its models take."""
        limit = self.stack.max_length
        return some_tokens(batch, length if limit is None else min(length, limit))


# Conditions of laws.

decoders = only("for decoders only", lambda subject: subject.kind == "decoder")
encoders = only("for encoders only", lambda subject: subject.kind == "encoder")
trained = only(
    "it only replaces another encoding after training",
    lambda subject: not any(description.replaces for description in subject.descriptions),
)
alone = only("about one encoding, not a list", lambda subject: not isinstance(subject.spec, list))
plain = only(
    "reported once for the class", lambda subject: subject.is_default and not isinstance(subject.spec, list)
)
first_kind = only(
    "reported for the other kind of model", lambda subject: subject.kind == kinds_of(subject.spec)[0]
)
"""For laws that are the same in an encoder and a decoder."""


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
    """Token ids [batch, length], the same in every call with the same length."""
    return torch.randint(vocab_size, (batch, length), generator=torch.Generator().manual_seed(length))


def keep_of(padding: tuple[int, ...] | None, length: int) -> Tensor | None:
    """[B, length], False at the first `padding[b]` tokens of sequence b; None without padding."""
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


def descriptions_in(spec: Any) -> list[Description]:
    """The descriptions of all encodings in a spec, wrapped ones included."""
    return [about for _, about in encodings_in(spec, ())]


def kinds_of(spec: Any) -> tuple[Kind, ...]:
    """The kinds of model that all encodings in a spec are for; where there is none, the first kind."""
    named = descriptions_in(spec)
    return tuple(kind for kind in KINDS if all(getattr(one, kind) for one in named)) or KINDS[:1]


def _label(spec: Any) -> str:
    if isinstance(spec, list | tuple):
        return "+".join(map(_label, spec))
    if isinstance(spec, dict):
        options = (f"{key}={_label(value)}" for key, value in spec.items() if key != "name")
        return " ".join([spec["name"], *options])
    return str(spec)


def subjects_with(spec: Any) -> list[Subject]:
    """An encoding with given options, or a list, in each kind of model that it is for.

    A model has the fewest layers, from 2, that the encoding accepts: a pattern of layers needs as many.
    """
    found = []
    for kind in kinds_of(spec):
        plain = Subject(spec, kind, is_default=isinstance(spec, str))
        deeper = (replace(plain, config={"num_layers": layers}) for layers in range(LAYERS + 1, DEEPEST + 1))
        found.append(next((one for one in chain([plain], deeper) if one.refusal is None), plain))
    return found


def subjects_of(description: Description) -> tuple[list[Subject], list[tuple[Subject, str]]]:
    """An encoding with its defaults, and with every other value of the options that list theirs.

    A wrapper is tried around each of `INSIDE`, and its options around the first that it accepts.

    Returns: the subjects; and the refused ones, with the reason. The defaults of an encoding that wraps no
        other must work.
    """
    wrapping = [one for one in description.options if one.default is registry.REQUIRED and one.wraps]
    found = [] if wrapping else subjects_with(description.name)
    refused: list[tuple[Subject, str]] = []

    def add(spec: Any, is_default: bool = False) -> None:
        for subject in (Subject(spec, kind, is_default) for kind in kinds_of(spec)):
            if reason := subject.refusal:
                refused.append((subject, reason))
            else:
                found.append(subject)

    base: dict[str, Any] = {"name": description.name}
    for inside in INSIDE if wrapping else ():
        base |= {one.name: [inside, "none"] if registry.holds_several(one.annotation) else inside
                 for one in wrapping}  # fmt: skip
        add(dict(base), is_default=not found)
    if wrapping and found:
        base = found[0].spec
    for option in description.options:
        for value in listed(option):
            add({**base, option.name: value})
    # The first law reports an encoding that refuses everything.
    return found or subjects_with(base), refused


def listed(option: Option) -> list[Any]:
    """The values of a bool or Literal option without its default; none for other types."""
    values: tuple[Any, ...] = ()
    if option.annotation is bool:
        values = (True, False)
    elif typing.get_origin(option.annotation) is typing.Literal:
        values = typing.get_args(option.annotation)
    return [value for value in values if value != option.default]
