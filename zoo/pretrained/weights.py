"""How the weights of a published architecture and those of the zoo's decoder are each other's.

Tensors have their shape in their name: H heads, D head width, E model width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
