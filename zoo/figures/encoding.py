"""The figure of encodings: their panels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from zoo import registry
from zoo.encodings.base import Encoding, Size
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError, Problem
from zoo.figures.encoding_panels import HookPanels
from zoo.figures.grid import Columns, Panel, PanelFigure, grid
from zoo.figures.hooks import Layer, draw_small_weights
from zoo.figures.plots import Reach
from zoo.figures.style import INK, styles
from zoo.recipe.diff import ENCODING
from zoo.recipe.encoding import changed_label, check_encoding
from zoo.recipe.tree import dotted

PAIRS = 4 * 1024**2
"""Pairs of tokens, times heads, of the largest figure."""
LAYERS = 8
"""Enough for the patterns of `interleave`."""
FIXED = "angles"
"""The panels of values that no weight decides."""
RANDOM = " Weights that start near zero are drawn at random here: training sets them."


@dataclass(frozen=True)
class Sizes:
    """The last position and the trained length, in tokens, and the model.

    Raises:
        InputError: numbers that do not fit together, or are too large for a figure.
    """

    length: int = 256
    trained: int = 64
    heads: int = 4
    d_model: int = 128

    def __post_init__(self) -> None:
        most = int((PAIRS / self.heads) ** 0.5)
        if self.trained > self.length:
            raise InputError(f"--trained {self.trained} is beyond --length {self.length}")
        if self.d_model % (2 * self.heads):
            raise InputError(f"--d-model {self.d_model} is not a multiple of twice --heads {self.heads}")
        if self.length > most:
            raise InputError(f"--length {self.length}: the most for {self.heads} heads is {most}")

    @property
    def title(self) -> str:
        return f"trained length {self.trained}, drawn to {self.length} tokens"


def figure(specs: Any, **sizes: int) -> PanelFigure:
    """The figure of one encoding, or of several side by side on shared scales.

    Args:
        specs: a name, a mapping of a name and options, a list of encodings that are combined; or a tuple of
            such.
        sizes: the fields of `Sizes`.

    Raises:
        InputError: an unknown encoding or option, or numbers that do not fit together.
    """
    return grid(columns(specs, Sizes(**sizes)), Sizes(**sizes).title)


def columns(specs: Any, sizes: Sizes) -> Columns:
    """The panels of each encoding, by its label; `specs` as of `figure`."""
    made = [resolved(spec) for spec in (specs if isinstance(specs, tuple) else (specs,))]
    looks, found = styles(labels_of(made)), {}
    for (label, look), spec in zip(looks.items(), made, strict=True):
        stack, drawn = build(spec, sizes)
        about = {"length": sizes.length, "trained": sizes.trained, "color": look.color}
        found[label] = panels_of(stack, **about, note=RANDOM if drawn else "")
    return found


def resolved(spec: Any) -> Any:
    """An encoding with every option. Raises InputError for an unknown name or option."""
    made, faults = check_encoding(spec, ("encoding",))
    if faults:
        raise InputError([Problem(fault, key=dotted(path)) for path, fault in faults.items()])
    return made


def labels_of(specs: Sequence[Any]) -> list[str]:
    """A label for each resolved encoding, with the options that are not at their default."""
    labels: list[str] = []
    for spec in specs:
        options = registry.encodings.describe(spec["name"]).options if isinstance(spec, dict) else ()
        changed = {
            f"{ENCODING}.{one.name}": spec[one.name] for one in options if spec[one.name] != one.default
        }
        plain = {key: value for key, value in changed.items() if not isinstance(value, dict | list | tuple)}
        labels.append(changed_label(spec, plain))
    return [f"{label} ({n})" if labels.count(label) > 1 else label for n, label in enumerate(labels, 1)]


def build(spec: Any, sizes: Sizes) -> tuple[EncodingStack, bool]:
    """The encodings of a small decoder (an encoder where they need one) in evaluation mode, and whether
    weights that start near zero were drawn at random."""
    size = Size(sizes.d_model, sizes.heads, LAYERS, sizes.trained, causal=True, layer=0)
    try:
        stack = EncodingStack(spec, size).eval()
    except InputError as error:
        if "is not for a decoder" not in str(error):
            raise
        stack = EncodingStack(spec, replace(size, causal=False)).eval()
    return stack, draw_small_weights(stack)


@torch.no_grad()
def panels_of(
    stack: EncodingStack, *, length: int, trained: int, color: str = INK, note: str = ""
) -> list[Panel]:
    """The panels of the encodings of a model, by the hooks that they override.

    Args:
        stack: in evaluation mode.
        length: the last position, in tokens; an encoding with an end is drawn to its end.
        note: added to the captions of panels that depend on weights.
    """
    reach = Reach(trained, length, min(stack.max_length or length, length))
    layers, found = _layers(stack), []
    for number, (name, encodings) in enumerate(layers.items()):
        learned = note if any(True for one in encodings for _ in one.parameters()) else ""
        for panel in HookPanels(Layer(encodings, stack.size, reach.defined), reach, color):
            if number and panel.key.startswith("embed"):
                continue  # the vectors are added before the first layer
            caption = panel.caption + reach.note + ("" if panel.key.startswith(FIXED) else learned)
            panel = replace(panel, caption=caption, color=color)
            if len(layers) > 1:
                key = f"{panel.key}_{number + 1}" if number else panel.key
                panel = replace(panel, key=key, title=f"{panel.title} ({name})")
            found.append(panel)
    return found


def _layers(stack: EncodingStack) -> dict[str, list[Encoding]]:
    """The encodings of the first of all layers that have the same ones, by their names."""
    found: dict[tuple[Any, ...], tuple[str, int, list[Encoding]]] = {}
    for layer in range(stack.size.num_layers):
        encodings = stack.layer(layer).encodings
        names = " + ".join(map(_innermost, encodings))
        found.setdefault((names, *(one.reads_positions for one in encodings)), (names, layer, encodings))
    all_names = [names for names, *_ in found.values()]
    return {
        f"{names} layers" if all_names.count(names) == 1 else f"{names}, layers from {layer}": encodings
        for names, layer, encodings in found.values()
    }


def _innermost(encoding: Encoding) -> str:
    inside = [one for one in encoding.children() if isinstance(one, Encoding)]
    return " + ".join(map(_innermost, inside)) if inside else encoding.name
