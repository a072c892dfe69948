"""The length sweep: trained models, scored at lengths they never saw."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.errors import InputError
from zoo.evaluation.plot import plot_lengths
from zoo.evaluation.protocols import PROTOCOLS, Row, Setting, work
from zoo.listing import table
from zoo.recipe.catalogue import TASKS
from zoo.tasks.task import Task
from zoo.training.callbacks import peak_memory_mb
from zoo.training.card import encoding_label
from zoo.training.checkpoint import find_checkpoint, load_task, run_folder_of
from zoo.training.run_folder import write_whole

MEASURES = {
    "accuracy": ("accuracy", "value_accuracy", "accuracy_within", "accuracy_beyond"),
    "nonoverlapping": ("loss_nats", "perplexity", "word_perplexity", "bits_per_byte"),
}


def evaluate(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
) -> list[Row]:
    """Evaluate runs or checkpoints, write each one's results beside it, and print them in one table.

    Args:
        paths: run folders or checkpoint files.
        lengths: in tokens; by default those of each recipe.
        protocols: names; by default those of each recipe.
        sets: `key=value` changes to the recipes, for example where the data lies.

    Raises:
        InputError: a path, a protocol or a change that cannot be used.
    """
    tasks = [(path, find_checkpoint(path), load_task(path, sets)) for path in paths]
    for _, _, task in tasks:
        known = TASKS[task.recipe.task.name].protocols
        for protocol in protocols or ():
            if protocol not in known:
                raise InputError(
                    f"no protocol {protocol!r} for task {task.recipe.task.name!r}; there are: {', '.join(known)}"
                )
    rows, folders = [], []
    for _, checkpoint, task in tasks:
        folder = run_folder_of(checkpoint) or checkpoint.parent
        rows += evaluate_task(task, open_data(task.recipe), folder, checkpoint, lengths, protocols)
        folders.append(folder)
    print(f"\nresults and plot: {', '.join(str(_shown(folder) / 'evaluation') for folder in folders)}", flush=True)
    return rows


def evaluate_task(
    task: Task,
    source: DataSource,
    folder: Path,
    checkpoint: Path,
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
) -> list[Row]:
    """Evaluate one model; its rows go into FOLDER/evaluation/lengths.json, beside those measured before."""
    recipe = task.recipe
    lengths = sorted(set(lengths or recipe.evaluate.lengths))
    device = torch.device("cuda" if torch.cuda.is_available() and recipe.trainer.accelerator != "cpu" else "cpu")
    was_training = task.training
    task.to(device).eval()
    rows = []
    for protocol in protocols or recipe.evaluate.protocols:
        settings = [Setting(length, lengths[-1], device, advance=lambda tokens: None) for length in lengths]
        total = sum(work(task, source, setting) for setting in settings)
        with tqdm(total=total, unit="token", unit_scale=True, desc=f"evaluating {recipe.name}",
                  disable=not sys.stderr.isatty(), leave=False) as bar, torch.inference_mode():  # fmt: skip
            for length in lengths:
                facts = {
                    "run": recipe.name,
                    "encoding": encoding_label(recipe.model.encoding),
                    "checkpoint": os.path.relpath(checkpoint, folder),
                    "seed": recipe.seed,
                    "protocol": protocol,
                    "length": length,
                    "train_length": recipe.data.sequence_length,
                }
                rows.append(facts | _measure(task, source, protocol, length, lengths[-1], device, bar.update))
    task.train(was_training)
    _store(folder / "evaluation", rows)
    print(rows_as_text(rows), flush=True)
    return rows


def _measure(
    task: Task, source: DataSource, protocol: str, length: int, longest: int, device: torch.device, advance: Any
) -> Row:
    limit = task.model.encoding.max_length
    if limit is not None and length > limit:
        return {"note": f"the encoding ends at {limit} tokens"}
    if source.kind == "text" and length > len(source.stream("valid")) - 1:
        return {"note": f"the validation text has only {len(source.stream('valid'))} tokens"}
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    row = PROTOCOLS[protocol](task, source, Setting(length, longest, device, advance))
    row["tokens_per_second"] = work(task, source, Setting(length, longest, device, advance)) / (
        time.perf_counter() - started
    )
    row["peak_memory_mb"] = peak_memory_mb(device)
    return row


def _store(folder: Path, rows: list[Row]) -> None:
    """Merge with what was measured before: a measurement repeated replaces itself alone."""
    file = folder / "lengths.json"
    known: dict[tuple, Row] = {}
    if file.is_file():
        try:
            known = {_key(row): row for row in json.loads(file.read_text(encoding="utf-8"))}
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{file}: not the results of an evaluation ({error}); move it away") from error
    known.update({_key(row): row for row in rows})
    merged = sorted(known.values(), key=lambda row: (str(row["checkpoint"]), row["protocol"], row["length"]))
    write_whole(file, json.dumps(merged, indent=1) + "\n")
    plot_lengths(merged, folder / "lengths.png")


def _key(row: Row) -> tuple:
    return row["checkpoint"], row["protocol"], row["length"]


def rows_as_text(rows: Iterable[Row]) -> str:
    """A table of results for the console; the trained length is marked."""
    rows = list(rows)
    measures = [m for group in MEASURES.values() for m in group if any(row.get(m) is not None for row in rows)]
    lines = []
    for row in rows:
        trained = " trained" if row["length"] == row["train_length"] else f" {row['length'] / row['train_length']:g}x"
        shown = [_number(row.get(measure)) for measure in measures]
        if "note" in row:
            shown = [row["note"], *[""] * (len(measures) - 1)]
        lines.append((row["encoding"], f"{row['length']}{trained}", *shown))
    return table(("encoding", "length", *[m.replace("_", " ") for m in measures]), lines)


def summary_line(rows: Sequence[Row]) -> str:
    """What came out, in one line."""
    measure, what = ("accuracy", "accuracy") if "accuracy" in rows[0] else ("perplexity", "perplexity")
    parts = []
    for row in rows:
        ratio = row["length"] / row["train_length"]
        where = "trained" if ratio == 1 else f"{ratio:g}x"
        value = row["note"] if "note" in row else _number(row[measure])
        parts.append(f"{value} at {row['length']} ({where})")
    return f"{what}: " + ", ".join(parts)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if abs(value) >= 10 else f"{value:.3f}"


def _shown(folder: Path) -> Path:
    """Relative to where the user stands, where that is shorter."""
    relative = Path(os.path.relpath(folder))
    return relative if len(str(relative)) < len(str(folder)) else folder
