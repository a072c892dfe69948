"""Published decoders, one file each: import from their format and export to it.

A file has `read`, which makes the section `model` of a recipe of a `config.json`, and `write`, its inverse;
`rows`, the table of the weights for both; and which models it holds, those for which it computes the same. To
add one: a file here, and a line in `ARCHITECTURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from zoo.errors import InputError, Problem, nearest
from zoo.pretrained.config import Config
from zoo.pretrained.options import Condition, Model, faults_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Row:
    """A weight of the zoo's decoder, and of which it is made: one line of an architecture's table.

    Attributes:
        ours: its name in the decoder.
        theirs: the names in the architecture; several are one below the other.
        sizes: the rows of each of several.
        transposed: kept as [in, out], as in GPT-2.
        heads: where queries, keys and values lie together head by head, the number of heads: [H,3,D,...]
            there is [3,H,D,...] here.
    """

    ours: str
    theirs: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    transposed: bool = False
    heads: int | None = None

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """The zoo's weight from the architecture's."""
        import torch  # the tables themselves are read without it

        value = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
        if self.transposed and value.dim() == 2:
            value = value.T
        if self.heads is not None:
            value = value.unflatten(0, (self.heads, 3, -1)).transpose(0, 1).flatten(0, 2)
        return value.contiguous()

    def split(self, value: Tensor) -> list[Tensor]:
        """The architecture's weights from the zoo's: the inverse of `join`."""
        if self.heads is not None:
            value = value.unflatten(0, (3, self.heads, -1)).transpose(0, 1).flatten(0, 2)
        if self.transposed and value.dim() == 2:
            value = value.T
        parts = value.split(self.sizes) if self.sizes else [value]
        return [part.contiguous() for part in parts]


MODULES = (
    "attention_norm", "feed_forward_norm", "attention.qkv", "attention.out", "feed_forward.up",
    "feed_forward.down", "attention.q_norm", "attention.k_norm",
)  # fmt: skip
"""The modules of a layer; not every architecture has the last two."""


def rows_of(
    model: dict[str, Any],
    outside: Mapping[str, str],
    layer: str,
    modules: Sequence[str | tuple[str, ...]],
    bias: Sequence[str] = MODULES,
    sizes: Mapping[str, tuple[int, ...]] | None = None,
    by_head: bool = False,
    transposed: bool = False,
) -> Iterator[Row]:
    """The table of an architecture.

    Args:
        outside: the names there of the weights outside the layers, by ours.
        layer: the name of layer {} there.
        modules: the names there of `MODULES`; several names where one weight here holds them.
        bias: the modules, by ours, that have one.
        sizes, transposed: as of `Row`.
        by_head: whether queries, keys and values lie together head by head.
    """
    for ours, theirs in outside.items():
        if ours != "head.weight" or not model["tie_embeddings"]:
            yield Row(ours, (theirs,))
    for number in range(model["num_layers"]):
        for ours, theirs in zip(MODULES, modules, strict=False):
            names = (theirs,) if isinstance(theirs, str) else theirs
            heads = model["num_heads"] if by_head and ours == "attention.qkv" else None
            for kind in ("weight", "bias") if ours in bias else ("weight",):
                at = tuple(f"{layer.format(number)}.{name}.{kind}" for name in names)
                size = (sizes or {}).get(ours, ())
                yield Row(f"blocks.{number}.{ours}.{kind}", at, size, transposed, heads)


@dataclass(frozen=True)
class Decoder:
    """What a `config.json` says: the section `model`, the trained length and the vocabulary, in tokens."""

    model: Model
    length: int
    vocab_size: int


@dataclass(frozen=True)
class Architecture:
    """One of `transformers`.

    Attributes:
        title: for messages.
        model_type: in `config.json`, and the name of its file.
        defaults: the keys of its configuration that may change logits, with their defaults in `transformers`.
        read: from its configuration, which collects the problems.
        rows: its table, for a resolved section `model`.
        prefix: what the names of its weights begin with, but for the output layer; a file without it has the
            base model alone.
        write: its configuration, from the section `model` with the `d_ff` that the model has, and the trained
            length.
        takes: values that keys of the section may have, or a test of them; others must have their default.
        encoding: why it cannot hold the encoding of a model; None where it can.
        buffers: endings of names of tensors that are not weights.
    """

    title: str
    model_type: str
    defaults: Mapping[str, Any]
    read: Callable[[Config], Decoder]
    rows: Callable[[Model], Iterator[Row]]
    prefix: str
    write: Callable[[Model, int], dict[str, Any]]
    takes: Mapping[str, Condition]
    encoding: Callable[[Model], str | None]
    buffers: tuple[str, ...] = ("rotary_emb.inv_freq",)

    def weights(self, own: Mapping[str, Tensor], model: Model) -> Iterator[tuple[str, Tensor]]:
        """Its weights by their names, from those of a model. A bias that the model lacks is zeros."""
        for row in self.rows(model):
            value = own.get(row.ours)
            if value is None:
                weight = own[row.ours.removesuffix("bias") + "weight"]
                value = weight.new_zeros(len(weight))
            yield from zip(row.theirs, row.split(value), strict=True)


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


def load(file: str) -> Architecture:
    """The architecture in a file of this package."""
    return import_module(f"{__name__}.{file}").ARCHITECTURE


def architecture_of(values: dict[str, Any], where: str) -> tuple[str, Architecture]:
    """The name and the reader of the architecture that a configuration names.

    Raises:
        InputError: none, one that is not known, or one of another `model_type`.
    """
    named, kind = values.get("architectures") or [], values.get("model_type") or ""
    if kind in ARCHITECTURES.values() and all(str(name).endswith("Model") for name in named):
        named = [name for name, file in ARCHITECTURES.items() if file == kind]
    for name in named:
        if name in ARCHITECTURES and kind in ("", ARCHITECTURES[name]):
            return name, load(ARCHITECTURES[name])
        if name in ARCHITECTURES:
            message = f"{kind!r} is not the {ARCHITECTURES[name]!r} of {name}"
            raise InputError(Problem(message, key="model_type", where=where))
    name = str(named[0]) if named else kind
    known = ", ".join(ARCHITECTURES)
    near = nearest(name, ARCHITECTURES)
    hint = f"; did you mean {near!r}?" if near else ""
    message = f"architecture {name!r} cannot be imported{hint}; there are {known}"
    raise InputError(Problem(message, key="architectures", where=where))


def architecture_for(model: Model) -> tuple[Architecture | None, str]:
    """The architecture that holds a model; or None and why the nearest cannot: `no Llama: norm is ...`.

    Args:
        model: the section of the run's recipe, resolved, with its `d_ff`.
    """

    def distance(pair: tuple[list[str], Architecture]) -> tuple[int, bool]:
        # Another encoding is farther away than another option of the same.
        return len(pair[0]), any(fault.startswith("encoding is") for fault in pair[0])

    tried = []
    for one in map(load, ARCHITECTURES.values()):
        fault = one.encoding(model)
        tried.append(([*faults_of(one.takes, model), *([fault] if fault else [])], one))
    faults, nearest_one = min(tried, key=distance)
    return (None, f"no {nearest_one.title}: {', '.join(faults)}") if faults else (nearest_one, "")
