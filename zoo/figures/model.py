"""Panels of trained models: attention, norms and loss by position, and the learned encoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from zoo.console import progress_bar
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError, Problem, collect
from zoo.evaluation.activations import Activations, middles, observe
from zoo.evaluation.interval import interval_of_mean
from zoo.figures import plots
from zoo.figures.encoding import PAIRS, panels_of
from zoo.figures.grid import Columns, Data, Panel
from zoo.figures.plots import layer_color, spread
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
ZERO = 0.5
"""Where position 0 stands on a logarithmic axis."""
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
    text: str | None = None,
    lengths: Sequence[int] | None = None,
    sets: Sequence[str] = (),
    device: str = "cpu",
    log: Callable[[str], Any] = lambda note: None,
) -> Columns:
    """The panels of trained models, by their labels.

    Args:
        paths: run folders, checkpoints or exported folders.
        text: the input; by default the validation data of each run.
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
            opened.append((path, *open_samples(path, text, lengths, sets)))
    if problems:
        raise InputError(dict.fromkeys(problems))
    names = [changed_label(task.recipe.as_dict()["model"]["encoding"], task.changed) for _, task, _ in opened]
    looks, found = styles(names), {}
    total = sum(batch["tokens"].numel() for *_, samples in opened for batch in samples.batches.values())
    with progress_bar(total, "drawing", "token", unit_scale=True, leave=False) as bar:
        for (path, task, samples), name in zip(opened, names, strict=True):
            for note in samples.notes:
                log(f"{path}: {note}")
            task.model.to(device)
            label = f"{task.recipe.name} ({name})"
            while label in found:  # another checkpoint of the same run
                label += "'"
            color = looks[name].color
            own = panels(task, samples, color, bar.update)
            found[label] = [replace(panel, color=color) for panel in own]
    return found


def panels(
    task: Task, samples: Samples, color: str, advance: Callable[[int], Any] = lambda count: None
) -> list[Panel]:
    """The panels of one model.

    Args:
        color: of its encoding.
        advance: called with the number of tokens that were read.
    """
    model, trained = task.model, task.recipe.data.sequence_length
    device, found = model.tokens.weight.device, []
    if len(samples.excerpt) > 1:
        weights = model.attention(samples.excerpt[None].to(device))[:, 0].cpu().numpy()
        found += attention_maps(weights, samples.names)
    observed = {}
    for length, batch in samples.batches.items():
        on_device = {name: values.to(device) for name, values in batch.items()}
        observed[length] = observe(model, on_device, trained, advance)
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
    for number, layer in enumerate(spread(layers, MAP_LAYERS)):
        heads = np.argsort(distance[layer], kind="stable")[spread(count, MAP_HEADS)]
        about = f"{len(heads)} of {count} heads" if count > len(heads) else "all heads"

        def draw(axes: Axes, data: Data) -> None:
            shown, gap = np.sqrt(data["weights"]), np.full((size, 1), np.nan)
            table = np.concatenate([part for one in shown for part in (one, gap)][:-1], axis=1)
            plots.image(axes, table, "square root of the weight", vmin=0, vmax=1)
            starts = np.arange(len(shown)) * (size + 1) + size / 2
            axes.set_xticks(starts, [f"head {head + 1}" for head in data["heads"]], fontsize=6)
            axes.set_yticks(rows + 0.5, data["names"], fontsize=5)
            axes.tick_params(length=0)

        found.append(
            Panel(
                f"attention_map_{number}", f"Attention on an excerpt: layer {layer + 1} of {layers}",
                f"A row for each query and a column for each key; {about}, from the head with the nearest "
                "keys to the one with the farthest.",
                {"weights": weights[layer, heads], "heads": heads, "names": list(names)}, draw,
            )
        )  # fmt: skip
    return found


def attention_by_distance(seen: Activations) -> Panel:
    """Mean attention over distance, of queries within the trained length and of those beyond it."""
    layers = spread(seen.attention.shape[1], LAYERS)
    sides = ("within", "beyond") if seen.length > seen.trained else ("within",)
    data: dict[str, Any] = {"distance": middles(seen.bins)}
    for side, name in enumerate(sides):
        for layer in layers:
            data[f"layer_{layer}_{name}"] = mean_over_sequences(seen.attention[:, layer, :, side])

    def draw(axes: Axes, data: Data) -> None:
        for name in sides:
            for number, layer in enumerate(layers):
                line = np.maximum(data[f"layer_{layer}_{name}"], SMALLEST)
                dashed = len(sides) > 1 and name == "within"
                look = {"color": layer_color(number, len(layers)), "linestyle": "--" if dashed else "-"}
                _draw_line(axes, data["distance"], line, label=f"layer {layer + 1}, {name}", **look)
        plots.plain_log(axes)
        _log_axis(axes, seen, "distance of the key (tokens)")
        axes.set_ylabel("mean attention weight")
        axes.legend(ncols=len(sides), **plots.LEGEND)

    caption = (
        "Solid: queries beyond the trained length; dashed: within it. Where they differ, a layer attends "
        "to other distances than in training."
        if len(sides) > 1
        else "Of sequences no longer than in training."
    )
    return Panel("attention_by_distance", "Attention over distance", caption, data, draw)


def by_position(seen: Activations, key: str) -> Panel:
    """Values of some layers by position in the longest sequences, of `BY_POSITION`."""
    name, title, unit, caption = BY_POSITION[key]
    values = getattr(seen, name)
    layers = spread(values.shape[1], LAYERS)
    data: dict[str, Any] = {"position": middles(seen.bins)}
    data |= {f"layer_{layer}": mean_over_sequences(values[:, layer]) for layer in layers}
    if key == "entropy":
        data["most"] = seen.most

    def draw(axes: Axes, data: Data) -> None:
        if "most" in data:
            axes.plot(np.maximum(data["position"], ZERO), data["most"], color=FAINT, linewidth=1)
        for number, layer in enumerate(layers):
            after = layer if key == "norm" else layer + 1  # the first norm is of the input
            label, color = f"layer {after}" if after else "input", layer_color(number, len(layers))
            _draw_line(axes, data["position"], data[f"layer_{layer}"], label=label, color=color)
        _log_axis(axes, seen, "position of the token")
        axes.set_ylabel(unit)
        axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
        axes.legend(ncols=2, **plots.LEGEND)

    return Panel(key, title, caption, data, draw)


def loss(observed: Mapping[int, Activations], color: str) -> Panel:
    """The loss by position, a line for each length."""
    lengths = sorted(observed, reverse=True)
    data: dict[str, Any] = {}
    for length, seen in observed.items():
        data[f"position_{length}"] = middles(seen.loss_bins)
        data[f"length_{length}"] = mean_over_sequences(seen.loss)

    def draw(axes: Axes, data: Data) -> None:
        for number, length in enumerate(lengths):
            look = {"color": color, "linestyle": plots.DASHED[number % len(plots.DASHED)], "marker": "o"}
            line = data[f"length_{length}"]
            _draw_line(axes, data[f"position_{length}"], line, label=f"in {length} tokens", **look)
        _log_axis(axes, observed[lengths[0]], "position of the token")
        axes.set_ylabel("loss (nats)")
        axes.legend(**plots.LEGEND)

    caption = "Mean and 95 % interval over sequences. A rise beyond the trained length is a failure."
    return Panel("loss", "Loss by position", caption, data, draw)


def learned(task: Task, length: int, color: str) -> list[Panel]:
    """Panels of the hooks that training changed, after it and, where the initial values are known, before it.

    Args:
        length: the last position, in tokens.
    """
    now, trained = task.model.encoding, task.recipe.data.sequence_length
    if next(now.parameters(), None) is None:
        return []
    length = max(trained, min(length, int((PAIRS / now.size.num_heads) ** 0.5)))
    before: dict[str, Panel] = {}
    if not (task.card.get("imported") or task.recipe.init_from or task.changed):
        config = task.recipe.model
        stack = EncodingStack(config.encoding, size_of(config, trained), task.recipe.seed).eval()
        before = {one.key: one for one in panels_of(stack, color=color, length=length, trained=trained)}
    found: list[Panel] = []
    for panel in panels_of(now, color=color, length=length, trained=trained):
        initial = before.get(panel.key)
        if initial and _same(panel.data, initial.data):
            continue
        found.append(replace(panel, key=f"learned_{panel.key}", title=f"{panel.title}, trained"))
        if initial:
            title = f"{panel.title}, before training"
            found.append(replace(initial, key=f"initial_{panel.key}", title=title))
    return found[: OF_HOOKS * (2 if before else 1)]


def _same(one: Data, other: Data) -> bool:
    return all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def mean_over_sequences(values: np.ndarray) -> np.ndarray:
    """[3,N]: mean, low and high end of the 95 % interval over sequences.

    Values are [W,...,N], and averaged over all axes between.

    NaN is left out; fewer than two sequences have no interval.
    """
    own = values if values.ndim == 2 else _nanmean(values, tuple(range(1, values.ndim - 1)))
    ends = []
    for column in own.T:
        low, high = interval_of_mean(column[np.isfinite(column)])
        # All that is drawn is at least zero.
        ends.append((math.nan if low is None else max(low, 0.0), math.nan if high is None else high))
    return np.stack([_nanmean(own, (0,)), *np.array(ends, dtype=float).reshape(-1, 2).T])


def _nanmean(values: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    """`np.nanmean` without its warning where all values are NaN."""
    known = ~np.isnan(values)
    count = known.sum(axis)
    return np.where(count > 0, np.where(known, values, 0).sum(axis) / np.maximum(count, 1), np.nan)


def _draw_line(axes: Axes, x: np.ndarray, line: np.ndarray, **look: Any) -> None:
    known = np.isfinite(line[0])
    x, (mean, low, high) = np.maximum(x, ZERO)[known], line[:, known]
    if look.get("linestyle", "-") == "-":
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axes.plot(x, mean, linewidth=1.1, markersize=2.5, **look)


def _log_axis(axes: Axes, seen: Activations, label: str) -> None:
    """Positions or distances on a logarithmic axis that has 0, the trained length marked."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(ZERO, seen.length)
    powers = [4**power for power in range(int(math.log(max(2, seen.length), 4)) + 1)]
    ticks = sorted({*(one for one in powers if not 0.3 < one / seen.trained < 3), seen.trained})
    axes.set_xticks([ZERO, *ticks], ["0", *map(str, ticks)])
    axes.minorticks_off()
    axes.set_xlabel(label)
    if seen.length > seen.trained:
        axes.axvspan(seen.trained, seen.length, color=FAINT, alpha=0.12, linewidth=0, zorder=0)
    axes.axvline(seen.trained, color=FAINT, linewidth=0.9, linestyle=":", zorder=0)
