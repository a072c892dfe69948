"""Decoders of the zoo under the names of an architecture that `transformers` has itself.

An architecture holds a model where it computes the same. Its weights have the names by which `architectures`
reads them.
"""

from __future__ import annotations

from zoo.pretrained.outward import gpt, llama
from zoo.pretrained.outward.architecture import Architecture, Model

ARCHITECTURES = (*llama.ARCHITECTURES, *gpt.ARCHITECTURES)


def architecture_of(model: Model) -> tuple[Architecture | None, str]:
    """The architecture that holds a model; or None and why the nearest cannot: `no Llama: norm is ...`.

    Args:
        model: the section of the run's recipe, resolved, with its `d_ff`.
    """

    def distance(pair: tuple[list[str], Architecture]) -> tuple[int, bool]:
        # Another encoding is farther away than another option of the same.
        return len(pair[0]), any(fault.startswith("encoding is") for fault in pair[0])

    faults, nearest = min(((one.faults(model), one) for one in ARCHITECTURES), key=distance)
    return (None, f"no {nearest.title}: {', '.join(faults)}") if faults else (nearest, "")
