"""The lines that `fit` prints before the training, and the evaluation after it."""

from __future__ import annotations

from zoo.console import command
from zoo.data.source import DataSource
from zoo.evaluation.evaluate import evaluate_run
from zoo.evaluation.measure import limits_of_evaluation
from zoo.evaluation.measurement import Measurement
from zoo.recipe.encoding import encoding_label
from zoo.recipe.sections import MAX_TOKENS
from zoo.runs.checkpoint_file import read_checkpoint
from zoo.runs.folder import LAST, RECIPE, RUNS
from zoo.runs.load import restored_run
from zoo.tasks.task import Task
from zoo.training.plan import Plan, short
from zoo.training.run import TrainingRun

LEAST_TOKENS = 16384
"""Tokens that are scored at each length after a training however short."""


def opening(run: TrainingRun, task: Task, source: DataSource) -> str:
    """The facts of a training, and what its evaluation will lack, a line each."""
    recipe, folder = run.recipe, run.folder
    plan = Plan.of(recipe, task.model, source)
    start = f", from {recipe.init_from}" if run.origin else ""
    verb = "continuing" if run.checkpoint else "training"
    computed = f"in {recipe.trainer.precision}{', compiled' if recipe.compile else ''}"
    article = "an" if recipe.model.kind == "encoder" else "a"
    line = (
        f"{verb} {recipe.name}: {encoding_label(recipe.model.encoding)} in {article} {recipe.model.kind} of "
        f"{short(plan.parameters)} parameters on {recipe.data.name}, length {recipe.data.sequence_length}, "
        f"{plan.size_text()} in {recipe.trainer.max_steps} steps {computed}{start}; "
        f"{plan.validation_text()}; run folder {folder}"
    )
    first = RUNS / recipe.name
    numbered = folder.parent == RUNS and folder.name.startswith(f"{recipe.name}-")
    if run.is_new and numbered and (first / RECIPE).exists():
        line += f" ({first} holds an earlier run; --resume continues one)"
    about = [source.about] if source.about else []
    return "\n".join([line, *about, *plan.warnings(), *limits_of_evaluation(task, source)])


def finish(trained: TrainingRun, source: DataSource) -> tuple[list[Measurement], list[str]]:
    """The measurements of the saved checkpoint, as `evaluate` makes them, and the lines to print below them.

    Where `evaluate.max_tokens` is null, at most a quarter of the trained tokens of text are scored at each
    length, but `LEAST_TOKENS` in any case: an evaluation must not take longer than a short training.
    """
    recipe, folder, scored = trained.recipe, trained.folder, trained.recipe.evaluate
    content = read_checkpoint(folder / LAST)
    card = content["zoo_card"]
    most = min(MAX_TOKENS, max(LEAST_TOKENS, card["tokens_seen"] // 4, *scored.lengths))
    scored = scored.model_copy(update={"max_tokens": scored.max_tokens or most})
    # By the recipe and the code in memory: those in files may have changed meanwhile.
    run = restored_run(folder, folder / LAST, content, recipe.model_copy(update={"evaluate": scored}))
    del content  # three times the model
    measurements = [*evaluate_run(run, source)] if scored.lengths else []
    steps, wanted = card["steps"], recipe.trainer.max_steps
    lines = [f"done: {recipe.name} is in {folder}"]
    if steps < wanted:
        # The time of the runs before counts too.
        more = " and a longer trainer.max_time" if recipe.trainer.flags().get("max_time") else ""
        lines = [f"stopped at step {steps} of {wanted}; continue with --resume{more}; it is in {folder}"]
    # A plugin is code: it runs only where the user names it.
    plugins = ["--set", f"plugins=[{', '.join(recipe.plugins)}]"] if recipe.plugins else []
    if recipe.evaluate.max_tokens is None and any(one.targets.text for one in measurements):
        available = min(MAX_TOKENS, len(source.stream(recipe.evaluate.split or "valid")) - 1)
        if most < available:
            again = command("evaluate", folder, *plugins)
            lines.append(f"scored {most:,} tokens at each length; for up to {MAX_TOKENS:,}: {again}")
    trained_length, limit = recipe.data.sequence_length, run.task.model.encoding.max_length
    lengths = [trained_length * 2**i for i in range(5) if limit is None or trained_length * 2**i <= limit]
    if len(lengths) > 1:
        further = command("evaluate", folder, "--lengths", ",".join(map(str, lengths)), *plugins)
        lines.append(f"look further: {further}")
    return measurements, lines
