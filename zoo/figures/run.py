"""`zoo draw RUN`: what a trained model does, and why it breaks where it breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from zoo.console import progress_bar
from zoo.errors import InputError, Problem, collect
from zoo.evaluation.activations import observe
from zoo.figures.attention_maps import maps
from zoo.figures.figure import Column, Figure
from zoo.figures.learned_panels import learned_panels
from zoo.figures.length_panels import by_length
from zoo.figures.panel import Panel
from zoo.figures.run_panels import by_distance, by_position
from zoo.figures.samples import Samples, open_samples
from zoo.figures.style import styles
from zoo.recipe.encoding import changed_label
from zoo.runs.load import validate_device
from zoo.tasks.task import Task


def draw_run(
    *runs: str | Path,
    text: str | None = None,
    lengths: Sequence[int] | None = None,
    sets: Sequence[str] = (),
    device: str = "cpu",
    say: Callable[[str], Any] = lambda note: None,
) -> Figure:
    """What trained models do, a column for each: attention on an excerpt, attention over distance, and by
    position its entropy, its weight on the first token, the norm of the residual stream and the loss; and
    what their encodings have learned.

    Args:
        runs: run folders, checkpoints or exported folders.
        text: what they read; by default their own validation data.
        lengths: of the sequences, in tokens; by default the trained one, twice and four times that.
        sets: `key=value` changes to what may change of a trained model.
        say: is given a sentence for all that is not drawn.

    Raises:
        InputError: everything that is wrong about any of them, before anything is computed.
    """
    validate_device(device)
    problems: list[Problem] = []
    opened: list[tuple[Path, Task, Samples]] = []
    for path in dict.fromkeys(map(Path, runs)):
        with collect(problems):
            opened.append((path, *open_samples(path, text, lengths, sets)))
    if problems:
        raise InputError(dict.fromkeys(problems))
    labels = [_label(task) for _, task, _ in opened]
    looks, columns = styles(labels), []
    total = sum(batch["tokens"].numel() for _, _, samples in opened for batch in samples.batches.values())
    with progress_bar(total, "drawing", "token", unit_scale=True, leave=False) as bar:
        for (path, task, samples), label in zip(opened, labels, strict=True):
            bar.set_description(f"drawing {task.recipe.name}", refresh=False)
            for note in samples.notes:
                say(f"{path}: {note}")
            task.model.to(device)
            panels = _panels(task, samples, looks[label].color, bar)
            columns.append(
                Column(_unique(f"{task.recipe.name} ({label})", columns), panels, looks[label].color)
            )
    trained = {task.recipe.data.sequence_length for _, task, _ in opened}
    longest = max((length for _, _, samples in opened for length in samples.batches), default=None)
    return Figure(columns, "What a trained model does", trained.pop() if len(trained) == 1 else None, longest)


def _panels(task: Task, samples: Samples, color: str, bar: tqdm) -> list[Panel]:
    model, trained = task.model, task.recipe.data.sequence_length
    device = model.tokens.weight.device
    panels = []
    if len(samples.excerpt) > 1:
        weights = model.attention(samples.excerpt[None].to(device))[:, 0].cpu().numpy()
        panels += maps(weights, samples.names)
    observed = {}
    for length, batch in samples.batches.items():
        on_device = {name: values.to(device) for name, values in batch.items()}
        observed[length] = observe(model, on_device, trained, bar.update)
    if observed:
        panels += [by_distance(observed[max(observed)]), *by_position(observed, color)]
        panels += filter(None, [by_length(observed)])
    return panels + learned_panels(task, max(observed, default=trained), color)


def _unique(label: str, columns: Sequence[Column]) -> str:
    """Two checkpoints of a run have the same name."""
    count = sum(column.label.partition(" #")[0] == label for column in columns)
    return f"{label} #{count + 1}" if count else label


def _label(task: Task) -> str:
    return changed_label(task.recipe.as_dict()["model"]["encoding"], task.changed)
