"""The length sweep: trained models, scored at lengths they never saw."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.errors import InputError
from zoo.evaluation.plot import plot_lengths
from zoo.evaluation.protocols import PROTOCOLS, Row, Setting, work
from zoo.listing import table
from zoo.memory import is_out_of_memory, peak_memory_mb, restart_peak_memory
from zoo.progress import progress_bar
from zoo.recipe.after_training import changed_label
from zoo.recipe.catalogue import TASKS
from zoo.runs.checkpoint import find_checkpoint, load_task, run_folder_of
from zoo.runs.folder import write_whole
from zoo.tasks.task import Task

RESULTS = Path("evaluation") / "lengths.json"
"""Where a run folder keeps what was measured; the plot lies beside it."""

MEASURES = (
    "accuracy", "value_accuracy", "accuracy_within", "accuracy_beyond",
    "loss_nats", "perplexity", "word_perplexity", "bits_per_byte",
)  # fmt: skip


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
        sets: `key=value` changes to the recipes, for example where the data lies, or of an encoding what may
            change after training; such rows are kept beside those of the encoding as it was trained.

    Raises:
        InputError: a path, a protocol or a change that cannot be used, or data of another tokenizer.
    """
    runs = []
    for path in paths:
        task = load_task(path, sets)
        known = TASKS[task.recipe.task.name].protocols
        for protocol in protocols or ():
            if protocol not in known:
                name = task.recipe.task.name
                raise InputError(f"no protocol {protocol!r} for task {name!r}; there are: {', '.join(known)}")
        source = open_data(task.recipe)
        _same_tokens(path, task, source)
        checkpoint = find_checkpoint(path)
        folder = run_folder_of(checkpoint) or checkpoint.parent
        stored_rows(folder)
        runs.append((checkpoint, folder, task, source))
    rows: list[Row] = []
    results = []
    try:
        for checkpoint, folder, task, source in runs:
            measured = evaluate_task(task, source, folder, checkpoint, lengths, protocols)
            rows += measured
            store_rows(folder, measured)
            results.append(_shown((folder / RESULTS).parent))
    finally:
        # What was measured is told, even if it cannot be stored or a later run fails.
        if rows:
            print(rows_as_text(rows), flush=True)
    print(f"\nresults and plot: {', '.join(dict.fromkeys(results))}", flush=True)
    return rows


def evaluate_task(
    task: Task,
    source: DataSource,
    folder: Path,
    checkpoint: Path,
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
) -> list[Row]:
    """Evaluate one model; nothing is stored (`store_rows`). `folder` is where `checkpoint` is shown from.

    A length that cannot be measured has a row with a `note` that says why.
    """
    recipe = task.recipe
    lengths = sorted(set(lengths or recipe.evaluate.lengths))
    on_gpu = torch.cuda.is_available() and recipe.trainer.accelerator != "cpu"
    device = torch.device("cuda" if on_gpu else "cpu")
    task.to(device).eval()
    rows = []
    for protocol in protocols or recipe.evaluate.protocols:
        notes = {length: _obstacle(task, source, length) for length in lengths}
        total = sum(work(task, source, length, lengths[-1]) for length in lengths if notes[length] is None)
        with progress_bar(total, f"evaluating {recipe.name}", "token", unit_scale=True, leave=False) as bar:
            for length in lengths:
                facts = {
                    "run": recipe.name,
                    "encoding": changed_label(recipe.as_dict()["model"]["encoding"], task.changed),
                    **({"changed": task.changed} if task.changed else {}),
                    "checkpoint": os.path.relpath(checkpoint, folder),
                    "step": task.card.get("steps"),
                    "seed": recipe.seed,
                    "protocol": protocol,
                    "length": length,
                    "train_length": recipe.data.sequence_length,
                }
                if notes[length] is None:
                    measured = _measure(task, source, protocol, length, lengths[-1], device, bar.update)
                else:
                    measured = {"note": notes[length]}
                rows.append(facts | measured)
    return rows


def _same_tokens(path: Path, task: Task, source: DataSource) -> None:
    """Token ids mean nothing to a model that was trained with another tokenizer."""
    trained = task.card.get("fingerprint", {}).get("tokenizer")
    tokenizer = source.fingerprint["tokenizer"]
    if source.vocab_size != task.hparams["vocab_size"] or trained not in (None, tokenizer):
        raise InputError(
            f"{path}: the training text of {task.recipe.data.name!r} gives another tokenizer than the "
            f"one that this model was trained with: the text has changed, or data.root or data.vocab_size "
            f"is another"
        )


def _obstacle(task: Task, source: DataSource, length: int) -> str | None:
    """Why a length cannot be measured; None where it can."""
    limit = task.model.encoding.max_length
    if limit is not None and length > limit:
        return f"the encoding ends at {limit} tokens"
    if source.kind == "text" and length >= len(source.stream("valid")):
        return f"the validation text has only {len(source.stream('valid'))} tokens"
    return None


def _measure(
    task: Task,
    source: DataSource,
    protocol: str,
    length: int,
    longest: int,
    device: torch.device,
    advance: Callable[[int], Any],
) -> Row:
    read = 0

    def count(tokens: int) -> None:
        nonlocal read
        read += tokens
        advance(tokens)

    restart_peak_memory(device)
    started = time.perf_counter()
    try:
        with torch.inference_mode():
            row = PROTOCOLS[protocol](task, source, Setting(length, longest, device, count))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return {"note": "out of memory; a smaller evaluate.batch_tokens may help"}
    row["tokens_per_second"] = read / (time.perf_counter() - started)
    row["peak_memory_mb"] = peak_memory_mb(device)
    # JSON has no word for the infinities that failed extrapolation may give.
    return {key: value if _finite(value) else None for key, value in row.items()}


def _finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def stored_rows(folder: Path) -> list[Row]:
    """What was measured before in FOLDER/evaluation/lengths.json.

    Raises:
        InputError: it cannot be read. Ask before measuring, so that no result is lost to it.
    """
    file = folder / RESULTS
    if not file.is_file():
        return []
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        _ = [(*_key(row), row["step"]) for row in rows]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file}: not the results of an evaluation ({error}); move it away") from error
    return rows


def store_rows(folder: Path, rows: list[Row]) -> None:
    """Merge with what was measured before: a measurement repeated replaces itself alone.

    What an earlier step of the same checkpoint file gave goes: the run was resumed since.
    """
    steps = {row["checkpoint"]: row["step"] for row in rows}
    kept = [row for row in stored_rows(folder) if row["step"] == steps.get(row["checkpoint"], row["step"])]
    known = {_key(row): row for row in [*kept, *rows]}
    merged = sorted(known.values(), key=_key)
    file = folder / RESULTS
    write_whole(file, json.dumps(merged, indent=1, allow_nan=False) + "\n")
    plot_lengths(merged, file.with_suffix(".png"))


def _key(row: Row) -> tuple:
    # An encoding that was changed after training is measured apart from the one that was trained.
    checkpoint, protocol, length = str(row["checkpoint"]), row["protocol"], row["length"]
    return checkpoint, protocol, json.dumps(row.get("changed") or {}, sort_keys=True), length


def rows_as_text(rows: Iterable[Row]) -> str:
    """A table of results for the console; the trained length is marked."""
    rows = list(rows)
    measures = [m for m in MEASURES if any(row.get(m) is not None for row in rows)]
    # Of several runs the encoding alone may not say which one.
    named = ("encoding",) if len({row["run"] for row in rows}) == 1 else ("run", "encoding")
    lines = []
    for row in rows:
        shown = [_number(row.get(measure)) for measure in measures]
        if "note" in row:
            shown = [row["note"], *[""] * len(measures)][: max(1, len(measures))]
        lines.append((*[row[name] for name in named], f"{row['length']} {_ratio(row)}", *shown))
    headings = [m.replace("_", " ") for m in measures] or ["note"]
    return table((*named, "length", *headings), lines)


def summary_line(rows: Sequence[Row]) -> str:
    """What came out, in one line."""
    measure = "accuracy" if any("accuracy" in row for row in rows) else "perplexity"
    measured = [row for row in rows if "note" not in row]
    parts = [
        f"{_number(row[measure]) or 'not finite'} at {row['length']} ({_ratio(row)})" for row in measured
    ]
    line = f"{measure}: " + (", ".join(parts) or "not measured")
    # A reason is told once, however many lengths it rules out.
    for note in dict.fromkeys(row["note"] for row in rows if "note" in row):
        lengths = ", ".join(str(row["length"]) for row in rows if row.get("note") == note)
        line += f"; not at {lengths}: {note}"
    return line


def _ratio(row: Row) -> str:
    ratio = row["length"] / row["train_length"]
    return "trained" if ratio == 1 else f"{ratio:g}x"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if abs(value) >= 10 else f"{value:.3f}"


def _shown(folder: Path) -> str:
    """Relative to where the user stands, where that is shorter."""
    return min(str(folder), os.path.relpath(folder), key=len)
