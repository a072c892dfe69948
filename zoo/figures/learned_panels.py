"""Panels of what a trained model's encoding has learned: its numbers, and what the hooks make of them, beside
what they were before training."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from zoo.encodings.stack import EncodingStack
from zoo.figures.attention_maps import spread
from zoo.figures.encoding import panels_of
from zoo.figures.panel import Data, Limits, Panel
from zoo.figures.specs import PAIRS
from zoo.figures.style import FAINT
from zoo.models.transformer import size_of
from zoo.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARAMETERS, LINES, NUMBERS = 4, 8, 1024
"""At most so many parameters have a panel, each with so many lines; one with more numbers is seen in what the
hooks make of it."""
OF_HOOKS = 2
"""Panels of the hooks, at most; each stands beside what it was."""


def learned_panels(task: Task, length: int, color: str) -> list[Panel]:
    """What the encoding of a trained model has learned; nothing where it learns nothing.

    Args:
        length: how far the hooks are drawn, in tokens.
        color: of the encoding in every figure.
    """
    now = task.model.encoding
    if next(now.parameters(), None) is None:
        return []
    before, trained = _initial(task), task.recipe.data.sequence_length
    length = max(trained, min(length, int((PAIRS / now.size.num_heads) ** 0.5)))
    found = [
        panels_of(stack, length=length, trained=trained, color=color) for stack in (now, before) if stack
    ]
    initial = {panel.key: panel for panel in found[1]} if before else {}
    hooks = []
    for panel in found[0]:
        old = initial.get(panel.key)
        if old is None or not _same(panel.data, old.data):
            hooks.append(replace(panel, key=f"learned_{panel.key}", title=f"{panel.title}, trained"))
            if old is not None:
                hooks.append(replace(old, key=f"initial_{panel.key}", title=f"{old.title}, before training"))
        if len(hooks) >= 2 * OF_HOOKS:
            break
    return [*hooks, *values(now, before, color)]


def _initial(task: Task) -> EncodingStack | None:
    """The encodings as they were before training; None where nobody knows."""
    if task.card.get("imported") or task.recipe.init_from or task.changed:
        return None
    config = task.recipe.model
    size = size_of(config, task.recipe.data.sequence_length)
    return EncodingStack(config.encoding, size, task.recipe.seed).eval()


def _same(one: Data, other: Data) -> bool:
    return all(
        name in other
        and np.shape(other[name]) == np.shape(value)
        and (
            np.allclose(value, other[name], rtol=1e-4, atol=1e-6, equal_nan=True)
            if np.asarray(value).dtype.kind == "f"
            else np.array_equal(value, other[name])
        )
        for name, value in one.items()
    )


def values(now: nn.Module, before: nn.Module | None, color: str) -> list[Panel]:
    """The parameters that hold the fewest numbers, each as lines over its entries."""
    old = dict(before.named_parameters()) if before is not None else {}
    small = [one for one in now.named_parameters() if one[1].numel() <= NUMBERS]
    panels = []
    for number, (name, parameter) in enumerate(sorted(small, key=lambda one: one[1].numel())[:PARAMETERS]):
        data = {"trained": _lines(parameter)}
        if name in old:
            data["before"] = _lines(old[name])
        count = parameter.numel() // len(data["trained"])
        shown = data["trained"].shape[1]
        part = f" {shown} of its {count} columns are drawn." if shown < count else ""
        said = "In colour: trained; grey: before training." if name in old else "As it came with the model."

        def paint(axes: Axes, data: Data, limits: Limits | None) -> None:
            _paint(axes, data, color)

        panels.append(Panel(f"values_{number}", f"Learned: {_named(now, name)}", said + part, data, paint))
    return panels


def _lines(parameter: nn.Parameter) -> np.ndarray:
    """[entries, lines]: the numbers of a parameter, the longer of its dimensions first."""
    table = parameter.detach().cpu().float().numpy()
    table = table.reshape(len(table), -1) if table.ndim else table.reshape(1, 1)
    if table.shape[0] < table.shape[1]:
        table = table.T
    return table[:, spread(table.shape[1], LINES)]


def _named(stack: nn.Module, name: str) -> str:
    """`slots.0.2.table` is the table of the encoding in layer 3, counted from 1."""
    _, slot, layer, *rest = name.split(".")
    own = stack.slots[int(slot)]
    where = f" (layer {int(layer) + 1})" if len(own) > 1 else ""
    return f"{own[int(layer)].name}, {'.'.join(rest)}{where}"


def _paint(axes: Axes, data: Data, color: str) -> None:
    lines = data["trained"].shape[1]
    size = 0 if data["trained"].size > 96 else 3.5
    for name, own in (("before", FAINT), ("trained", color)):
        if name in data:
            axes.plot(data[name], color=own, linewidth=0.9, marker="o", markersize=size)
    axes.axhline(0, color=FAINT, linewidth=0.5, zorder=0)
    axes.set_xlabel("entry" + (" (a line for each column)" if lines > 1 else ""))
    axes.set_ylabel("value")
