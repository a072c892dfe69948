"""The figure of encodings: which panels there are follows from the hooks that an encoding overrides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from zoo.console import progress_bar
from zoo.encodings.base import Encoding, Size
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError
from zoo.figures import content_panels, position_panels
from zoo.figures.figure import Column, Figure
from zoo.figures.marks import Reach
from zoo.figures.panel import Panel
from zoo.figures.probes import Probe, draw_small_weights
from zoo.figures.specs import D_MODEL, HEADS, LENGTH, TRAINED, check_sizes, colors_of, labels_of, resolved
from zoo.figures.style import styles

LAYERS = 2
"""Or as many as the pattern of an `interleave` has."""
FIXED = ("positions", "mask", "angles", "wavelengths", "rotated_length")
"""Panels of what no weight decides."""
RANDOM = " Weights that start near zero are drawn at random here: training sets them."


def draw_encodings(
    specs: Sequence[Any],
    *,
    length: int = LENGTH,
    trained: int = TRAINED,
    heads: int = HEADS,
    d_model: int = D_MODEL,
) -> Figure:
    """Encodings beside each other, on shared axes.

    Args:
        specs: each as a recipe has it: a name, a mapping of a name and options, or a list of such.
        length: how far the pictures go, in tokens.
        trained: the length that they are built for, in tokens.

    Raises:
        InputError: an encoding or an option that there is not, or numbers that do not go together.
    """
    check_sizes(length, trained, heads, d_model)
    made = [resolved(spec) for spec in specs]
    labels = labels_of(made)
    colors, columns = colors_of(made), []
    with progress_bar(len(made), "drawing", "encoding") as bar:
        for spec, label, color in zip(made, labels, colors, strict=True):
            stack, drawn = build(spec, trained=trained, heads=heads, d_model=d_model)
            found = panels_of(
                stack, length=length, trained=trained, color=color, note=RANDOM if drawn else ""
            )
            columns.append(Column(label, found, color))
            bar.update(1)
    title = f"trained length {trained}, drawn to {length} tokens"
    return Figure(columns, title, trained=trained, length=length)


def build(
    spec: Any, *, trained: int = TRAINED, heads: int = HEADS, d_model: int = D_MODEL
) -> tuple[EncodingStack, bool]:
    """The encodings of a small model, in evaluation mode, and whether weights that start near zero were drawn
    at random. A decoder's, unless it is for encoders alone."""
    size = Size(d_model, heads, max(LAYERS, _longest(spec)), trained, causal=True, layer=0)
    try:
        stack = EncodingStack(spec, size)
    except InputError as error:
        if "is not for a decoder" not in str(error):
            raise
        stack = EncodingStack(spec, Size(d_model, heads, size.num_layers, trained, causal=False, layer=0))
    return stack.eval(), draw_small_weights(stack)


@torch.no_grad()
def panels_of(
    encoding: Encoding | EncodingStack | Any,
    *,
    length: int = LENGTH,
    trained: int = TRAINED,
    color: str | None = None,
    note: str = "",
) -> list[Panel]:
    """The panels of an encoding, or of all those of a model, by the hooks that they override.

    Args:
        encoding: in evaluation mode; or one as a recipe has it, which is built with the default sizes.
        length: how far they go, in tokens; less where an encoding refuses so long a sequence.
        trained: marked in each panel, in tokens.
        color: of the encoding in every figure; by default that of its name.
        note: what is said in the caption of panels of learned values.
    """
    if not isinstance(encoding, nn.Module):
        encoding, drawn = build(resolved(encoding), trained=trained)
        note = RANDOM if drawn else note
    if color is None:
        name = encoding.slots[0][0].name if isinstance(encoding, EncodingStack) else encoding.name
        color = styles([name])[name].color
    limit = encoding.max_length
    reach = Reach(trained, length, length if limit is None else min(limit, length))
    layers = _layers(encoding)
    found = []
    for number, (named, encodings) in enumerate(layers):
        own = [*_of_layer(Probe(encodings, encodings[0].size, reach.defined), reach, color, note)]
        if len(layers) > 1:
            # What is met before the first layer is not drawn again for each.
            own = [
                _of(panel, number, named) for panel in own if not number or not panel.key.startswith("embed")
            ]
        found += own
    return found


def _of_layer(probe: Probe, reach: Reach, color: str, note: str) -> Iterator[Panel]:
    learned = any(next(one.parameters(), None) is not None for one in probe.encodings)
    for panel in _by_hooks(probe, reach, color):
        said = note if learned and panel.key not in FIXED else ""
        yield replace(panel, caption=panel.caption + reach.said + said)


def _by_hooks(probe: Probe, reach: Reach, color: str) -> Iterator[Panel]:
    drawn = probe.drawn_positions()
    if len(drawn):
        yield position_panels.positions(probe, drawn, reach, color)
    if probe.uses("embed"):
        yield from position_panels.added_vectors(probe, reach, color)
    if probe.uses("rotate"):
        yield from position_panels.rotation(probe, reach, color)
    if probe.uses("bias"):
        yield from position_panels.biases(probe, reach, color)
    if probe.uses("score") or probe.uses("logits"):
        yield from content_panels.added_scores(probe, reach, color)
    if probe.uses("value"):
        yield content_panels.values(probe, reach, color)
    if probe.uses("rotate"):
        yield content_panels.copies(probe, reach, color)
    if not any(map(probe.uses, ("embed", "rotate", "bias", "score", "logits", "value"))):
        yield content_panels.mask_alone(probe, reach)
    yield content_panels.attention(probe, reach, color)


def _layers(encoding: Encoding | EncodingStack) -> list[tuple[str, list[Encoding]]]:
    """The encodings of each layer, with their names; of layers whose encodings are of the same classes, the
    first alone."""
    if isinstance(encoding, Encoding):
        return [("", [encoding])]
    found: dict[str, list[Encoding]] = {}
    for layer in range(encoding.size.num_layers):
        encodings = encoding.layer(layer).encodings
        found.setdefault(" + ".join(map(_classes, encodings)), encodings)
    return list(found.items())


def _classes(encoding: nn.Module) -> str:
    """The names of an encoding and of those that it wraps, the innermost last."""
    inside = [one for one in encoding.children() if isinstance(one, Encoding)]
    return ": ".join([encoding.name, *map(_classes, inside)])


def _of(panel: Panel, layer: int, named: str) -> Panel:
    """The panel of a layer whose encodings are not those of all others."""
    key = panel.key if layer == 0 else f"{panel.key}_{layer + 1}"
    return replace(panel, key=key, title=f"{panel.title} ({named.split(': ')[-1]} layers)")


def _longest(spec: Any) -> int:
    """The longest list of encodings within an encoding: a pattern has no more of them than layers."""
    if isinstance(spec, list | tuple):
        return max([0, *map(_longest, spec)])
    if isinstance(spec, dict):
        lists = [len(value) for value in spec.values() if isinstance(value, list | tuple)]
        return max([0, *lists, *map(_longest, spec.values())])
    return 0
