"""Panels of trained models: attention, norms and loss by position, and the learned encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from scipy.special import stdtrit

from zoo.console import waiting
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError, Problem, collect
from zoo.figures import plots
from zoo.figures.activations import Activations, middles, observe
from zoo.figures.encoding import PAIRS, panels_of
from zoo.figures.grid import Columns, Panel
from zoo.figures.plots import Data, LinePlot, Reach, layer_color, spread
from zoo.figures.samples import Samples, open_samples
from zoo.figures.style import FAINT, styles
from zoo.models.transformer import size_of
from zoo.recipe.encoding import changed_label
from zoo.runs.load import validate_device
from zoo.tasks.task import Task

TITLE = "What a trained model does"
MAP_LAYERS, MAP_HEADS, LAYERS = 3, 4, 5
"""Layers and heads with a map of attention, and layers with a line, at most."""
SMALLEST = 1e-6
OF_HOOKS = 2
"""Panels of hooks before and after training, at most."""
BY_POSITION = {
    "entropy": (
        "entropy", "Entropy of attention", "entropy (nats)",
        "Grey: log n, of attention that is equal for all n visible tokens. A line that follows it disperses; "
        "a level line attends to equally many tokens.",
    ),
    "first_token": (
        "first", "Attention to the first token", "weight on the first token",
        "Heads without a target attend to the first token (an attention sink).",
    ),
    "norm": (
        "norm", "Norm of the residual stream", "norm (Euclidean)",
        "Before the first layer and after each. A norm that changes beyond the trained length is an input "
        "that later layers have not seen in training.",
    ),
}  # fmt: skip
"""By the key of a panel: the values of `Activations`, the title, the unit and the caption."""


def columns(
    *paths: str | Path,
    lengths: Sequence[int] | None = None,
    sets: Sequence[str] = (),
    device: str = "cpu",
    log: Callable[[str], Any] = lambda note: None,
) -> Columns:
    """The panels of trained models on the validation data of each, by their labels.

    Args:
        paths: run folders, checkpoints or exported folders.
        lengths: of the sequences, in tokens; by default the trained one, x2 and x4.
        sets: `key=value` changes to keys that may change after training.
        log: called with a sentence for everything that is not drawn.

    Raises:
        InputError: everything that is wrong about any of them.
    """
    validate_device(device)
    problems: list[Problem] = []
    opened: list[tuple[Path, Task, Samples]] = []
    for path in dict.fromkeys(map(Path, paths)):
        with collect(problems):
            opened.append((path, *open_samples(path, lengths, sets)))
    if problems:
        raise InputError(dict.fromkeys(problems))
    names = [changed_label(task.recipe.as_dict()["model"]["encoding"], task.changed) for _, task, _ in opened]
    looks, found = styles(names), {}
    with waiting("drawing"):
        for (path, task, samples), name in zip(opened, names, strict=True):
            for note in samples.notes:
                log(f"{path}: {note}")
            task.model.to(device)
            label = f"{task.recipe.name} ({name})"
            while label in found:  # another checkpoint of the same run
                label += "'"
            color = looks[name].color
            own = panels(task, samples, color)
            found[label] = [replace(panel, color=color) for panel in own]
    return found


def panels(task: Task, samples: Samples, color: str) -> list[Panel]:
    """The panels of one model, in the colour of its encoding."""
    model, trained = task.model, task.recipe.data.sequence_length
    device, found = model.tokens.weight.device, []
    if len(samples.excerpt) > 1:
        weights = model.attention(samples.excerpt[None].to(device))[:, 0].cpu().numpy()
        found += attention_maps(weights, samples.names)
    observed = {}
    for length, batch in samples.batches.items():
        on_device = {name: values.to(device) for name, values in batch.items()}
        observed[length] = observe(model, on_device, trained)
    if observed:
        longest = observed[max(observed)]
        found += [attention_by_distance(longest), *(by_position(longest, key) for key in BY_POSITION)]
        if any(np.isfinite(seen.loss).any() for seen in observed.values()):
            found.append(loss(observed, color))
    return found + learned(task, max(observed, default=trained), color)


def attention_maps(weights: np.ndarray, names: Sequence[str]) -> list[Panel]:
    """The attention of some heads of some layers on an excerpt.

    Args:
        weights: [L,H,T,T].
        names: of the T tokens.
    """
    layers, count, size = weights.shape[:3]
    rows, found = np.arange(size), []
    distance = (weights * np.abs(rows[:, None] - rows)).sum(-1).mean(-1)

    def draw(axes: Axes, data: Data) -> None:
        shown = np.sqrt(data["weights"])
        starts = plots.side_by_side(axes, shown, "square root of the weight", vmin=0, vmax=1)
        labels = [f"head {head + 1}" for head in data["heads"]]
        axes.set_xticks([start + size / 2 for start in starts], labels, fontsize=6)
        axes.set_yticks(rows + 0.5, data["names"], fontsize=5)
        axes.tick_params(length=0)

    for number, layer in enumerate(spread(layers, MAP_LAYERS)):
        heads = np.argsort(distance[layer], kind="stable")[spread(count, MAP_HEADS)]
        about = f"{len(heads)} of {count} heads" if count > len(heads) else "all heads"
        found.append(Panel(
            f"attention_map_{number}", f"Attention on an excerpt: layer {layer + 1} of {layers}",
            f"A row for each query and a column for each key; {about}, from the head with the nearest "
            "keys to the one with the farthest.",
            {"weights": weights[layer, heads], "heads": heads, "names": list(names)}, draw,
        ))  # fmt: skip
    return found


def _lines(
    seen: Activations, key: str, title: str, caption: str, axis: str, unit: str, x: np.ndarray,
    values: Sequence[np.ndarray], looks: Sequence[dict[str, Any]], **options: Any,
) -> Panel:  # fmt: skip
    """A panel of means over sequences by position or distance.

    Args:
        values: of each line, [W,...,N].
        options: those of `LinePlot`.
    """
    ends = np.stack([mean_over_sequences(one) for one in values], 1)
    data = {"x": x, **dict(zip(("mean", "low", "high"), ends, strict=True))}
    reach = Reach(seen.trained, seen.length, seen.length)
    return Panel(key, title, caption, data, LinePlot(reach, axis, unit, looks, log_tokens=True, **options))


def attention_by_distance(seen: Activations) -> Panel:
    """Mean attention over distance, of queries within the trained length and of those beyond it."""
    layers = spread(seen.attention.shape[1], LAYERS)
    sides = ("within", "beyond") if seen.length > seen.trained else ("within",)
    values, looks = [], []
    for side, name in enumerate(sides):
        for number, layer in enumerate(layers):
            values.append(np.maximum(seen.attention[:, layer, :, side], SMALLEST))
            look = {"label": f"layer {layer + 1}, {name}", "color": layer_color(number, len(layers))}
            looks.append(look | {"linestyle": "--" if name != sides[-1] else "-"})
    caption = (
        "Solid: queries beyond the trained length; dashed: within it. Where they differ, a layer attends "
        "to other distances than in training."
        if len(sides) > 1
        else "Of sequences no longer than in training."
    )
    return _lines(
        seen, "attention_by_distance", "Attention over distance", caption, "distance of the key",
        "mean attention weight", middles(seen.bins), values, looks, log=True,
        limits=(None, 5 * max(float(np.nanmax(one)) for one in map(mean_over_sequences, values))),
    )  # fmt: skip


def by_position(seen: Activations, key: str) -> Panel:
    """Values of some layers by position in the longest sequences, of `BY_POSITION`."""
    name, title, unit, caption = BY_POSITION[key]
    every = getattr(seen, name)
    layers = spread(every.shape[1], LAYERS)
    values, looks = [every[:, layer] for layer in layers], []
    for number, layer in enumerate(layers):
        after = layer if key == "norm" else layer + 1  # the first norm is of the input
        label, color = f"layer {after}" if after else "input", layer_color(number, len(layers))
        looks.append({"label": label, "color": color})
    if key == "entropy":
        values.append(seen.most[None])
        looks.append({"color": FAINT, "linewidth": 1.0})
    top = max(1.3 * float(np.nanmax(one)) for one in map(mean_over_sequences, values))
    return _lines(
        seen, key, title, caption, "position", unit, middles(seen.bins), values, looks, limits=(0, top)
    )


def loss(observed: Mapping[int, Activations], color: str) -> Panel:
    """The loss by position, a line for each length."""
    ordered = [observed[length] for length in sorted(observed, reverse=True)]
    count = len(ordered[0].loss_bins) - 1

    def padded(values: np.ndarray) -> np.ndarray:
        missing = [(0, 0)] * (values.ndim - 1) + [(0, count - values.shape[-1])]
        return np.pad(values, missing, constant_values=np.nan)

    looks = [
        {"label": f"in {seen.length} tokens", "color": color, "marker": "o", "linestyle": dash}
        for seen, dash in zip(ordered, plots.DASHED * len(ordered), strict=False)
    ]
    caption = "Mean and 95 % interval over sequences. A rise beyond the trained length is a failure."
    return _lines(
        ordered[0], "loss", "Loss by position", caption, "position", "loss (nats)",
        np.stack([padded(middles(seen.loss_bins)) for seen in ordered]),
        [padded(seen.loss) for seen in ordered], looks,
    )  # fmt: skip


def learned(task: Task, length: int, color: str) -> list[Panel]:
    """Panels of the hooks that training changed, after it and, where the initial values are known, before it.

    Args:
        length: the last position, in tokens.
    """
    now, trained = task.model.encoding, task.recipe.data.sequence_length
    if next(now.parameters(), None) is None:
        return []
    length = max(trained, min(length, int((PAIRS / now.size.num_heads) ** 0.5)))
    look = {"length": length, "trained": trained, "color": color}
    before: dict[str, Panel] = {}
    if not (task.card.get("imported") or task.recipe.init_from or task.changed):
        config = task.recipe.model
        stack = EncodingStack(config.encoding, size_of(config, trained), task.recipe.seed).eval()
        before = {one.key: one for one in panels_of(stack, **look)}
    found: list[Panel] = []
    for panel in panels_of(now, **look):
        initial, data = before.get(panel.key), panel.data
        if initial and all(np.array_equal(data[n], initial.data[n], equal_nan=True) for n in data):
            continue
        found.append(replace(panel, key=f"learned_{panel.key}", title=f"{panel.title}, trained"))
        if initial:
            title = f"{panel.title}, before training"
            found.append(replace(initial, key=f"initial_{panel.key}", title=title))
    return found[: OF_HOOKS * (2 if before else 1)]


def mean_over_sequences(values: np.ndarray) -> np.ndarray:
    """[3,N]: the mean, which leaves out NaN, and the ends of its 95 % interval (Student's t) over sequences.

    Values are [W,...,N], and averaged over all axes between. One sequence has no interval.
    """
    each = torch.as_tensor(values).reshape(len(values), -1, values.shape[-1]).nanmean(1)
    frame = pd.DataFrame(each.numpy())
    mean, count = frame.mean(), frame.count()
    margin = stdtrit(np.maximum(count - 1, 1), 0.975) * frame.std() / count**0.5
    return np.stack([mean, np.maximum(mean - margin, 0), mean + margin])  # no value is below zero
