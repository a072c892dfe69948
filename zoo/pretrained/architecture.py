"""A published model as a table: the keys of its `config.json`, the names of its weights, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from zoo.pretrained.config import NUMBER, Config
from zoo.recipe import schema

if TYPE_CHECKING:
    from torch import Tensor

Model = dict[str, Any]  # the section `model` of a recipe, as plain data
Condition = tuple[Any, ...] | Callable[[Any, Model], bool]  # values that a key may have, or a test

# Keys of the section that every architecture takes, or that change no result of a trained model.
IN_ALL = {
    "encoding", "d_model", "num_layers", "num_heads", "norm_eps", "dropout", "tie_embeddings",
    "kernel", "gradient_checkpointing", "init_std",
}  # fmt: skip
EPS = {"layernorm": 1e-5, "rmsnorm": 2.0**-23}  # what torch adds to a variance by default, in float32
KINDS: dict[str, type | tuple[type, ...]] = {
    "norm_eps": float, "tie_embeddings": bool, "parallel_residual": bool, "unembedding_scale": NUMBER,
}  # fmt: skip
MODULES = (
    "attention_norm", "feed_forward_norm", "attention.qkv", "attention.out", "feed_forward.up",
    "feed_forward.down",
)  # fmt: skip
"""The modules of a layer that most architectures have."""


def usual(*theirs: str | tuple[str, ...]) -> dict[str, str | tuple[str, ...]]:
    """The names of `MODULES` in an architecture."""
    return dict(zip(MODULES, theirs, strict=True))


@dataclass(frozen=True)
class MappedWeight:
    """A weight of the zoo's model, and the weights of the architecture that hold it.

    Attributes:
        ours: its name in the zoo's model.
        theirs: the names in the architecture; several are one below the other.
        sizes: the rows of each of several.
        transposed: kept as [in, out], as in GPT-2.
        heads: where queries, keys and values lie together head by head, the number of heads: [H,3,D,...]
            there is [3,H,D,...] here.
        offset: the number added to a gain that is kept as its distance from 1.
        adds_row: it is the first, with the first row of the second added to each of its rows.
    """

    ours: str
    theirs: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    transposed: bool = False
    heads: int | None = None
    offset: float = 0.0
    adds_row: bool = False

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """The zoo's weight from the architecture's."""
        import torch  # the tables themselves are read without it

        if self.adds_row:
            return parts[0] + parts[1][0]
        value = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
        if self.transposed and value.dim() == 2:
            value = value.T
        if self.heads is not None:
            value = value.unflatten(0, (self.heads, 3, -1)).transpose(0, 1).flatten(0, 2)
        return (value + self.offset if self.offset else value).contiguous()

    def split(self, value: Tensor) -> list[Tensor]:
        """The architecture's weights from the zoo's: the inverse of `join`."""
        if self.adds_row:
            return [value.contiguous(), value.new_zeros(1, value.shape[1])]
        if self.heads is not None:
            value = value.unflatten(0, (3, self.heads, -1)).transpose(0, 1).flatten(0, 2)
        if self.transposed and value.dim() == 2:
            value = value.T
        value = value - self.offset if self.offset else value
        parts = value.split(self.sizes) if self.sizes else [value]
        return [part.contiguous() for part in parts]


@dataclass(frozen=True)
class PublishedConfig:
    """The section `model` in a `config.json`, the trained length and the vocabulary, in tokens."""

    model: Model
    length: int
    vocab_size: int


@dataclass(frozen=True)
class Architecture:
    """One of `transformers`.

    Attributes:
        title: for messages.
        model_type: in `config.json`.
        defaults: the keys of its configuration that may change logits, with their defaults in `transformers`.
        names: keys of `model`, and the keys of the configuration with the same meaning: the first is written.
        length: the keys of the trained length.
        kept: keys of `model` that have one value in all its models.
        read_own, write_own: the rest of `model` from a configuration that collects the problems, and the rest
            of a configuration from the section `model` with its `d_ff` and the trained length.
        takes: values that other keys of `model` may have, or a test of them. A key in none of `names`, `kept`
            and `takes` must have its default.
        encoding: returns the reason why it cannot hold the encoding of a model; None where it can.
        outside: the names of the weights outside the layers, by ours; of two, `adds_row` of `MappedWeight`.
        layer: the name of layer {}.
        modules: the names of the modules of a layer, by ours; several where one weight here holds them.
        zeros: the modules, by ours, that have a bias of zeros where a given `model` has none.
        sizes: as of `MappedWeight`, of the modules with several names.
        gain_offset: as `offset` of `MappedWeight`, of all norms.
        by_head: whether queries, keys and values lie together head by head.
        transposed: as of `MappedWeight`.
        prefix: the beginning of the names of its weights, but for the output layer; a file without it has the
            base model alone.
        repeated: the names of tensors that are a second time there, each with the first: of the output layer
            of a tied model.
        buffers: endings of names of tensors that are not weights.
    """

    title: str
    model_type: str
    defaults: Mapping[str, Any]
    names: Mapping[str, tuple[str, ...]]
    length: tuple[str, ...]
    read_own: Callable[[Config, Model], Model]
    write_own: Callable[[Model, int], dict[str, Any]]
    takes: Mapping[str, Condition]
    encoding: Callable[[Model], str | None]
    outside: Mapping[str, str | tuple[str, str]]
    layer: str
    modules: Mapping[str, str | tuple[str, ...]]
    prefix: str
    kept: Model = field(default_factory=dict)
    zeros: Callable[[Model], Sequence[str]] = lambda model: ()
    sizes: Callable[[Model], Mapping[str, tuple[int, ...]]] = lambda model: {}
    gain_offset: float = 0.0
    by_head: bool = False
    transposed: bool = False
    repeated: Mapping[str, str] = field(default_factory=dict)
    buffers: tuple[str, ...] = ("rotary_emb.inv_freq",)

    def copies(self, model: Model) -> dict[str, str]:
        """The names of tensors that a file of this model may repeat, each with the one that is read."""
        head, tokens = self.outside["head.weight"], self.outside["tokens.weight"]
        return {**self.repeated, **({head: tokens} if model["tie_embeddings"] else {})}

    def read(self, config: Config) -> PublishedConfig:
        model = {"kind": "decoder", **self.kept}
        model |= {
            ours: config.take(*theirs, kind=KINDS.get(ours, int)) for ours, theirs in self.names.items()
        }
        model |= self.read_own(config, model)
        return PublishedConfig(model, config.take(*self.length), config.take("vocab_size"))

    def write(self, model: Model, length: int) -> dict[str, Any]:
        given = model | {"norm_eps": model.get("norm_eps") or EPS[model["norm"]]}
        return {theirs[0]: given[ours] for ours, theirs in self.names.items()} | self.write_own(model, length)

    def rows(self, model: Model, own: Collection[str]) -> Iterator[MappedWeight]:
        """The table of the weights, for a resolved section `model` whose weights have these names."""
        zeros, sizes = self.zeros(model), self.sizes(model)
        for ours, theirs in self.outside.items():
            if ours in own or ours.rpartition(".")[0] in zeros:
                names = (theirs,) if isinstance(theirs, str) else theirs
                yield MappedWeight(ours, names, offset=self._offset(ours), adds_row=len(names) > 1)
        for number, (ours, theirs) in product(range(model["num_layers"]), self.modules.items()):
            names = (theirs,) if isinstance(theirs, str) else theirs
            heads = model["num_heads"] if self.by_head and ours == "attention.qkv" else None
            for kind in ("weight", "bias"):
                name = f"blocks.{number}.{ours}.{kind}"
                at = tuple(f"{self.layer.format(number)}.{one}.{kind}" for one in names)
                if name in own or ours in zeros:
                    by = sizes.get(ours, ()), self.transposed, heads, self._offset(name)
                    yield MappedWeight(name, at, *by)

    def _offset(self, ours: str) -> float:
        return self.gain_offset if ours.endswith("norm.weight") else 0.0

    def weights(self, own: Mapping[str, Tensor], model: Model) -> Iterator[tuple[str, Tensor]]:
        """Its weights by their names, from those of a model. A bias that the model lacks is zeros."""
        for row in self.rows(model, own):
            value = own.get(row.ours)
            if value is None:
                weight = own[row.ours.removesuffix("bias") + "weight"]
                value = weight.new_zeros(len(weight))
            yield from zip(row.theirs, row.split(value), strict=True)

    def faults(self, model: Model) -> list[str]:
        """The keys that keep a model from being held: `norm is layernorm`; empty where none does.

        Args:
            model: the section of the run's recipe, resolved, with its `d_ff`.
        """
        kept = {"kind": "decoder", **self.kept}
        takes = {key: (value,) for key, value in kept.items()} | dict(self.takes)
        found = []
        for key, option in schema.ModelConfig.model_fields.items():
            if key not in takes and (key in IN_ALL or key in self.names):
                continue
            taken, value = takes.get(key, (option.default,)), model.get(key, option.default)
            if not (taken(value, model) if callable(taken) else value in taken):
                found.append(f"{key} is {'null' if value is None else value}")
        fault = self.encoding(model)
        return [*found, *([fault] if fault else [])]
