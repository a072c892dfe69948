"""What `fit` prints before the training, and the evaluation after it."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from zoo.data.source import DataSource
from zoo.evaluation.evaluate import evaluate_run
from zoo.evaluation.measurement import Measurement, merged
from zoo.evaluation.protocols.text import FEW_DOCUMENTS, Text
from zoo.recipe import Recipe
from zoo.recipe.encoding import encoding_label
from zoo.recipe.sections import MAX_TOKENS
from zoo.reports.run_folder import show_results
from zoo.runs.folder import RECIPE, RUNS
from zoo.runs.load import load_run
from zoo.tasks.task import Task
from zoo.training.plan import Plan, short

LEAST_TOKENS = 16384
"""Tokens that are scored at each length after a training however short."""


def opening_line(recipe: Recipe, plan: Plan, folder: Path, checkpoint: Path | None) -> str:
    start = f", from {recipe.init_from}" if recipe.init_from and not checkpoint else ""
    verb = "continuing" if checkpoint else "training"
    computed = f"in {recipe.trainer.precision}{', compiled' if recipe.compile else ''}"
    article = "an" if recipe.model.kind == "encoder" else "a"
    line = (
        f"{verb} {recipe.name}: {encoding_label(recipe.model.encoding)} in {article} {recipe.model.kind} of "
        f"{short(plan.parameters)} parameters on {recipe.data.name}, length {recipe.data.sequence_length}, "
        f"{plan.size_text()} in {recipe.trainer.max_steps} steps {computed}{start}; run folder {folder}"
    )
    first = RUNS / recipe.name
    numbered = folder.parent == RUNS and folder.name.startswith(f"{recipe.name}-")
    if checkpoint is None and numbered and (first / RECIPE).exists():
        line += f" ({first} holds an earlier run; --resume continues one)"
    return line


def few_documents(task: Task, source: DataSource) -> list[str]:
    """A line where the scored text has too few documents for intervals over them, with the remedy."""
    config = task.recipe.evaluate
    if source.kind != "text" or not config.lengths:
        return []
    text = Text(task, source, config.lengths)
    documents = len(set(text.documents(np.arange(text.size)).tolist()))
    if documents >= FEW_DOCUMENTS:
        return []
    begin = f"{documents} document{'s' * (documents != 1)} will be scored: "
    remedy = "for intervals over documents, give each document a file or a record of its own"
    if text.blocks >= 2:
        return [f"{begin}intervals are over {text.blocks} blocks of text; {remedy}"]
    return [f"{begin}too little text for intervals at length {max(config.lengths)}; {remedy}"]


def finish(recipe: Recipe, source: DataSource, folder: Path) -> None:
    """Evaluate the saved checkpoint, as `evaluate` would, and print the results.

    Where `evaluate.max_tokens` is null, at most a quarter of the trained tokens of text are scored at each
    length, but `LEAST_TOKENS` in any case: an evaluation must not take longer than a short training.
    """
    run = load_run(folder)
    card, scored = run.task.card, recipe.evaluate
    most = min(MAX_TOKENS, max(LEAST_TOKENS, card["tokens_seen"] // 4, *scored.lengths))
    scored = scored.model_copy(update={"max_tokens": scored.max_tokens or most})
    # A run that is resumed at its end may have other settings of its evaluation than its checkpoint. The code
    # in memory is that of its training, whatever has become of the file of a plugin.
    run.task.recipe, run.task.changed = recipe.model_copy(update={"evaluate": scored}), {}
    measurements: list[Measurement] = []
    try:
        for one in evaluate_run(run, source) if scored.lengths else ():
            measurements = merged([*measurements, one])
    finally:
        if measurements:
            show_results(folder, measurements)
    steps, wanted = card["steps"], recipe.trainer.max_steps
    if steps < wanted:
        # The time of the runs before counts too.
        more = " and a longer trainer.max_time" if recipe.trainer.flags().get("max_time") else ""
        print(f"stopped at step {steps} of {wanted}; continue with --resume{more}; it is in {folder}")
    else:
        print(f"done: {recipe.name} is in {folder}")
    # A plugin is code: it runs only where the user names it.
    plugins = ["--set", f"plugins=[{', '.join(recipe.plugins)}]"] if recipe.plugins else []
    evaluate = ["python", "-m", "zoo", "evaluate", str(folder)]
    if recipe.evaluate.max_tokens is None and any(one.targets.text for one in measurements):
        available = min(MAX_TOKENS, len(source.stream(recipe.evaluate.split or "valid")) - 1)
        if most < available:
            command = shlex.join([*evaluate, *plugins])
            print(f"scored {most:,} tokens at each length; for up to {MAX_TOKENS:,}: {command}")
    trained, limit = recipe.data.sequence_length, run.task.model.encoding.max_length
    lengths = [str(trained * 2**i) for i in range(5) if limit is None or trained * 2**i <= limit]
    if len(lengths) > 1:
        command = shlex.join([*evaluate, "--lengths", ",".join(lengths), *plugins])
        print(f"look further: {command}", flush=True)
