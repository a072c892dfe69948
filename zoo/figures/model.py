"""Panels of trained models: attention, norms and loss by position, and learned parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import nn

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
from zoo.figures.style import FAINT, INK, styles
from zoo.figures.training import read_logged, training_panels
from zoo.models.transformer import size_of
from zoo.recipe.encoding import changed_label
from zoo.runs.load import find_checkpoint, run_folder_of, validate_device
from zoo.tasks.task import Task

TITLE = "What a trained model does"
MAP_LAYERS, MAP_HEADS, LAYERS = 3, 4, 5
"""Layers and heads with a map of attention, and layers with a line, at most."""
SMALLEST = 1e-6
PARAMETERS, LINES, NUMBERS = 4, 8, 1024
"""Parameters with a panel, lines of each, and numbers of the largest such parameter, at most."""
OF_HOOKS = 2
"""Panels of hooks before and after training, at most."""
DASHES = ("-", "--", ":", "-.")
"""Of the longest length, and of shorter ones."""
ZERO = 0.5
"""Where position 0 stands on a logarithmic axis."""

Line = tuple[np.ndarray, np.ndarray, np.ndarray]
"""A mean and its interval, low and high, [N] each."""


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
            found[label] = [
                *panels(task, samples, looks[name].color, bar.update),
                *_of_folder(path, name),
            ]
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
        found += [attention_by_distance(observed[max(observed)]), *by_position(observed, color)]
    if len(observed) > 1:
        found.append(attention_by_length(observed))
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
    data: dict[str, Any] = {"distance": middles(seen.bins)}
    for side, name in enumerate(("within", "beyond")):
        for layer in layers:
            data |= _named(f"layer_{layer}_{name}", mean_over_sequences(seen.attention[:, layer, :, side]))
    beyond = seen.length > seen.trained

    def draw(axes: Axes, data: Data) -> None:
        for dash, name in enumerate(("beyond", "within") if beyond else ("within",)):
            for number, layer in enumerate(layers):
                line = [np.maximum(one, SMALLEST) for one in _line(data, f"layer_{layer}_{name}")]
                _draw_line(axes, data["distance"], line, layer_color(number, len(layers)), dash)
        plots.plain_log(axes)
        _log_axis(axes, seen, "distance of the key (tokens)")
        axes.set_ylabel("mean attention weight")
        _legend(axes, layers, ["beyond trained", "within"] if beyond else [])

    caption = (
        "Solid: queries beyond the trained length; dashed: within it. Where they differ, a layer attends "
        "to other distances than in training."
        if beyond
        else "Of sequences no longer than in training."
    )
    return Panel("attention_by_distance", "Attention over distance", caption, data, draw)


def by_position(observed: Mapping[int, Activations], color: str) -> list[Panel]:
    """Entropy, weight on the first token, norm and loss by position.

    Args:
        observed: by length, in tokens.
        color: of the line of the loss.
    """
    longest = observed[max(observed)]
    layers, streams = (spread(one.shape[1], LAYERS) for one in (longest.entropy, longest.norm))
    found = [
        _by_position(
            observed, "entropy", layers, "Entropy of attention", "entropy (nats)",
            "Grey: log n, of attention that is equal for all n visible tokens. A line that follows it "
            "disperses; a level line attends to equally many tokens.",
        ),
        _by_position(
            observed, "first", layers, "Attention to the first token", "weight on the first token",
            "Heads without a target attend to the first token (an attention sink).",
        ),
        _by_position(
            observed, "norm", streams, "Norm of the residual stream", "norm (Euclidean)",
            "Before the first layer and after each. A norm that changes beyond the trained length is an "
            "input that later layers have not seen in training.",
        ),
    ]  # fmt: skip
    if any(np.isfinite(seen.loss).any() for seen in observed.values()):
        found.append(_loss(observed, color))
    return found


def _by_position(
    observed: Mapping[int, Activations], key: str, layers: Sequence[int], title: str, unit: str, caption: str
) -> Panel:
    lengths = sorted(observed, reverse=True)
    longest = observed[lengths[0]]
    data: dict[str, Any] = {"most": longest.most} if key == "entropy" else {}
    for length, seen in observed.items():
        data[f"position_{length}"] = middles(seen.bins)
        for layer in layers:
            values = getattr(seen, key)[:, layer]
            data |= _named(f"layer_{layer}_length_{length}", mean_over_sequences(values))
    # A decoder's shorter sequences are the beginnings of the longest, so their lines coincide.
    drawn = lengths if _differ(data, lengths, [f"layer_{layer}_" for layer in layers]) else lengths[:1]

    def draw(axes: Axes, data: Data) -> None:
        if "most" in data:
            axes.plot(_logged(data[f"position_{lengths[0]}"]), data["most"], color=FAINT, linewidth=1)
        for dash, length in enumerate(drawn):
            for number, layer in enumerate(layers):
                line = _line(data, f"layer_{layer}_length_{length}")
                _draw_line(axes, data[f"position_{length}"], line, layer_color(number, len(layers)), dash)
        _log_axis(axes, longest, "position of the token")
        axes.set_ylabel(unit)
        axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
        names = [f"in {length} tokens" for length in drawn] if len(drawn) > 1 else []
        _legend(axes, layers, names, first=0 if key == "norm" else 1)

    return Panel({"first": "first_token"}.get(key, key), title, caption, data, draw)


def _loss(observed: Mapping[int, Activations], color: str) -> Panel:
    lengths = sorted(observed, reverse=True)
    data: dict[str, Any] = {}
    for length, seen in observed.items():
        data[f"position_{length}"] = middles(seen.loss_bins)
        data |= _named(f"length_{length}", mean_over_sequences(seen.loss))
    drawn = lengths if _differ(data, lengths, [""]) else lengths[:1]

    def draw(axes: Axes, data: Data) -> None:
        for dash, length in enumerate(drawn):
            line = _line(data, f"length_{length}")
            label = f"in {length} tokens"
            _draw_line(axes, data[f"position_{length}"], line, color, dash, marker="o", label=label)
        _log_axis(axes, observed[lengths[0]], "position of the token")
        axes.set_ylabel("loss (nats)")
        if len(drawn) > 1:
            axes.legend(**plots.LEGEND)

    caption = "Mean and 95 % interval over sequences. A rise beyond the trained length is a failure."
    return Panel("loss", "Loss by position", caption, data, draw)


def attention_by_length(observed: Mapping[int, Activations]) -> Panel:
    """Entropy as a share of log n, and the weight on the first token, of late queries, by length."""
    lengths = sorted(observed)
    first = observed[lengths[0]]
    layers = spread(first.entropy.shape[1], LAYERS)
    data: dict[str, Any] = {"length": np.array(lengths)}
    for kind in ("share", "first"):
        for layer in layers:
            parts = [
                mean_over_sequences(late(observed[length], getattr(observed[length], kind)[:, layer]))
                for length in lengths
            ]
            line = tuple(np.concatenate(ends) for ends in zip(*parts, strict=True))
            data |= _named(f"layer_{layer}_{kind}", line)

    def draw(axes: Axes, data: Data) -> None:
        for dash, kind in enumerate(("share", "first")):
            for number, layer in enumerate(layers):
                line = _line(data, f"layer_{layer}_{kind}")
                _draw_line(axes, data["length"], line, layer_color(number, len(layers)), dash)
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.minorticks_off()
        axes.set_xlabel("length of the sequence (tokens)")
        axes.set_ylabel("share")
        axes.set_ylim(0, 1.4)
        axes.axvline(first.trained, color=FAINT, linewidth=0.9, linestyle=":", zorder=0)
        _legend(axes, layers, ["entropy / log n", "on the first token"])

    return Panel(
        "attention_by_length", "Entropy and attention sink by length",
        "Of queries in the second half of sequences: entropy as a share of log n, and the weight on the "
        "first token. A rising entropy disperses attention.", data, draw,
    )  # fmt: skip


def late(seen: Activations, values: np.ndarray) -> np.ndarray:
    """[W,1]: the mean of values [W,H,N] over heads and over the positions of a sequence's second half."""
    bins = middles(seen.bins) >= seen.length / 2
    kept = values[..., bins]
    weights = np.where(np.isfinite(kept), np.diff(seen.bins)[bins], 0.0)
    total = weights.sum((1, 2))
    mean = (np.nan_to_num(kept) * weights).sum((1, 2)) / np.where(total > 0, total, np.nan)
    return mean[:, None]


def learned(task: Task, length: int, color: str) -> list[Panel]:
    """What the encoding of a trained model has learned, beside its initial values where they are known.

    Args:
        length: the last position, in tokens.
    """
    now = task.model.encoding
    if next(now.parameters(), None) is None:
        return []
    trained = task.recipe.data.sequence_length
    size = {"length": max(trained, min(length, int((PAIRS / now.size.num_heads) ** 0.5))), "trained": trained}
    before = _initial(task)
    old = {panel.key: panel for panel in panels_of(before, color=color, **size)} if before else {}
    hooks: list[Panel] = []
    for panel in panels_of(now, color=color, **size):
        initial = old.get(panel.key)
        if initial and _same(panel.data, initial.data):
            continue
        hooks.append(replace(panel, key=f"learned_{panel.key}", title=f"{panel.title}, trained"))
        if initial:
            title = f"{panel.title}, before training"
            hooks.append(replace(initial, key=f"initial_{panel.key}", title=title))
        if len(hooks) >= 2 * OF_HOOKS:
            break
    return [*hooks, *_parameters(now, before, color)]


def _initial(task: Task) -> EncodingStack | None:
    """The encodings before training; None where the weights came from elsewhere."""
    if task.card.get("imported") or task.recipe.init_from or task.changed:
        return None
    config = task.recipe.model
    size = size_of(config, task.recipe.data.sequence_length)
    return EncodingStack(config.encoding, size, task.recipe.seed).eval()


def _same(one: Data, other: Data) -> bool:
    return all(
        np.shape(other[name]) == np.shape(value)
        and np.allclose(value, other[name], rtol=1e-4, atol=1e-6, equal_nan=True)
        for name, value in one.items()
    )


def _parameters(now: nn.Module, before: nn.Module | None, color: str) -> list[Panel]:
    """The smallest parameters, each as lines over its entries."""
    old = dict(before.named_parameters()) if before is not None else {}
    small = sorted(
        (one for one in now.named_parameters() if one[1].numel() <= NUMBERS), key=lambda o: o[1].numel()
    )
    found = []
    for number, (name, parameter) in enumerate(small[:PARAMETERS]):
        data = {"trained": _entries(parameter)}
        if name in old:
            data["before"] = _entries(old[name])

        def draw(axes: Axes, data: Data) -> None:
            for key, own in (("before", FAINT), ("trained", color)):
                if key in data:
                    axes.plot(data[key], color=own, linewidth=0.9, marker="o", markersize=2.5)
            axes.axhline(0, color=FAINT, linewidth=0.5, zorder=0)
            axes.set_xlabel("entry")
            axes.set_ylabel("value")

        _, slot, layer, *rest = name.split(".")
        encoding = now.slots[int(slot)][int(layer)].name
        where = f" (layer {int(layer) + 1})" if len(now.slots[int(slot)]) > 1 else ""
        caption = "A line for each column. " + ("Grey: before training." if name in old else "As imported.")
        found.append(
            Panel(f"values_{number}", f"Learned: {encoding}, {'.'.join(rest)}{where}", caption, data, draw)
        )
    return found


def _entries(parameter: nn.Parameter) -> np.ndarray:
    """[entries, lines]: the numbers of a parameter, the longer of its dimensions first."""
    table = parameter.detach().cpu().float().numpy()
    table = table.reshape(len(table), -1) if table.ndim else table.reshape(1, 1)
    table = table.T if table.shape[0] < table.shape[1] else table
    return table[:, spread(table.shape[1], LINES)]


def _of_folder(path: Path, label: str) -> list[Panel]:
    """The training curves and the results by length in the folder of a run, where it has them."""
    folder = run_folder_of(find_checkpoint(path))
    if folder is None:
        return []
    found = training_panels({folder.name: (label, read_logged(folder))})
    file = folder / "evaluation" / "lengths.json"
    rows = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    for measure, unit in (("loss_nats", "loss (nats)"), ("accuracy", "accuracy")):
        curves: dict[str, list[tuple[int, float]]] = {}
        for row in rows:
            if row.get(measure) is not None:
                curves.setdefault(row["protocol"], []).append((row["length"], row[measure]))
        if curves:
            data = {name: np.array(sorted(points)).T for name, points in curves.items()}
            draw = partial(_results, unit=unit, color=styles([label])[label].color)
            caption = "As evaluated; a line for each protocol."
            found.append(Panel(f"results_{measure}", f"{unit.capitalize()} by length", caption, data, draw))
    return found


def _results(axes: Axes, data: Data, unit: str, color: str) -> None:
    for index, (name, (lengths, values)) in enumerate(data.items()):
        dash = DASHES[index % len(DASHES)]
        axes.plot(lengths, values, color=color, linestyle=dash, marker="o", markersize=3, label=name)
    axes.set_xlabel("length (tokens)")
    axes.set_ylabel(unit)
    axes.legend(**plots.LEGEND)


def mean_over_sequences(values: np.ndarray) -> Line:
    """Mean and 95 % interval over sequences of values [W,...,N], averaged over all axes between.

    NaN is left out; fewer than two sequences have no interval.
    """
    own = values if values.ndim == 2 else _nanmean(values, tuple(range(1, values.ndim - 1)))
    ends = []
    for column in own.T:
        low, high = interval_of_mean(column[np.isfinite(column)])
        # All that is drawn is at least zero.
        ends.append((math.nan if low is None else max(low, 0.0), math.nan if high is None else high))
    low, high = np.array(ends, dtype=float).reshape(-1, 2).T
    return _nanmean(own, (0,)), low, high


def _nanmean(values: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    """`np.nanmean` without its warning where all values are NaN."""
    known = ~np.isnan(values)
    count = known.sum(axis)
    return np.where(count > 0, np.where(known, values, 0).sum(axis) / np.maximum(count, 1), np.nan)


def _named(name: str, line: Line) -> dict[str, np.ndarray]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), line, strict=True))


def _line(data: Data, name: str) -> list[np.ndarray]:
    return [data[name], data[f"{name}_low"], data[f"{name}_high"]]


def _differ(data: Data, lengths: Sequence[int], lines: Sequence[str]) -> bool:
    """Whether a token in a shorter sequence has other values than at the same place in the longest."""
    for line in lines:
        whole = data[f"{line}length_{lengths[0]}"]
        for length in lengths[1:]:
            part = data[f"{line}length_{length}"][:-1]  # the last bin may be cut off
            if not np.allclose(part, whole[: len(part)], rtol=1e-3, atol=1e-5, equal_nan=True):
                return True
    return False


def _logged(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, ZERO)


def _draw_line(
    axes: Axes, x: np.ndarray, line: Sequence[np.ndarray], color: Any, dash: int, **options: Any
) -> None:
    known = np.isfinite(line[0])
    x = _logged(x)[known]
    if dash == 0:
        axes.fill_between(x, line[1][known], line[2][known], color=color, alpha=0.15, linewidth=0)
    look = {"linestyle": DASHES[dash % len(DASHES)], "linewidth": 0.9 if dash else 1.3, "markersize": 2.5}
    axes.plot(x, line[0][known], color=color, **look, **options)


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


def _legend(axes: Axes, layers: Sequence[int], dashes: Sequence[str], first: int = 1) -> None:
    """Layers by colour, counted from 1 (with `first=0`, layer 0 is the input), and lines by dash."""
    names = [f"layer {layer + first}" if layer + first else "input" for layer in layers]
    handles = [
        Line2D([], [], color=layer_color(number, len(layers)), label=name)
        for number, name in enumerate(names)
    ]
    handles += [
        Line2D([], [], color=INK, linestyle=DASHES[number % len(DASHES)], label=text)
        for number, text in enumerate(dashes)
    ]
    axes.legend(handles=handles, ncols=2, **plots.LEGEND)
