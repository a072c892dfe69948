"""Published decoders that can be imported: one file each.

A file has `read`, which makes of a `config.json` the section `model` of a recipe, and `rows`, the table of
its weights. To add one: a file here, and a line in `ARCHITECTURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from zoo.errors import InputError, Problem, nearest
from zoo.pretrained.config import Config
from zoo.pretrained.weights import Row

Model = dict[str, Any]
"""The section `model` of a recipe, as plain data."""


@dataclass(frozen=True)
class Decoder:
    """What a `config.json` says: the section `model`, the trained length and the vocabulary, in tokens."""

    model: Model
    length: int
    vocab_size: int


@dataclass(frozen=True)
class Architecture:
    """How one is read.

    Attributes:
        read: from its configuration; what is wrong is noted there.
        rows: its table, for a resolved section `model`.
        prefix: what the names of its weights begin with, but for the output layer; a file without it has the
            base model alone.
        buffers: endings of names that are no weights.
    """

    read: Callable[[Config], Decoder]
    rows: Callable[[Model], Iterator[Row]]
    prefix: str
    buffers: tuple[str, ...] = ("rotary_emb.inv_freq",)


ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "SmolLM3ForCausalLM": "smollm3",
    "GPTNeoXForCausalLM": "gpt_neox",
    "GPT2LMHeadModel": "gpt2",
    "BloomForCausalLM": "bloom",
    "MptForCausalLM": "mpt",
}
"""The file of each, by its name in `config.json`; the names of their base models end with `Model`."""


def architecture_of(config: Config) -> tuple[str, Architecture]:
    """The name and the reader of the architecture that a configuration names.

    Raises:
        InputError: none, or one that is not known.
    """
    named = config.take("architectures", kind=list, default=[])
    by_type = {file: name for name, file in ARCHITECTURES.items()}
    for name in named:
        if name in ARCHITECTURES:
            return name, import_module(f"{__name__}.{ARCHITECTURES[name]}").ARCHITECTURE
    kind = config.take("model_type", kind=str, default="")
    if kind in by_type and (not named or all(str(name).endswith("Model") for name in named)):
        return by_type[kind], import_module(f"{__name__}.{kind}").ARCHITECTURE
    name = str(named[0]) if named else kind
    known = ", ".join(ARCHITECTURES)
    near = nearest(name, ARCHITECTURES)
    hint = f"; did you mean {near!r}?" if near else ""
    message = f"architecture {name!r} cannot be imported{hint}; those that can are {known}"
    raise InputError(Problem(message, key="architectures", where=config.where))
