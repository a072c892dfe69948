"""What will be wrong with a run's numbers, known before the model is trained."""

from __future__ import annotations

from zoo.data.source import DataSource
from zoo.evaluation.measurement import TOO_FEW
from zoo.evaluation.protocols import build_protocol
from zoo.tasks.task import Task


def unmeasurable_lengths(task: Task, source: DataSource) -> list[str]:
    """A line for each reason why lengths of the recipe cannot be measured: beyond the encoding's end, or more
    than the data has. The evaluation will note the same of these lengths."""
    training = task.training
    task.eval()  # the end of some encodings is another while they are trained
    try:
        reasons: dict[str, set[int]] = {}
        for name in task.recipe.evaluate.protocols:
            protocol = build_protocol(name, task.recipe.evaluate)
            plans = protocol.plan(task, source, sorted(set(task.recipe.evaluate.lengths)))
            lengths = [length for plan in plans for length in plan.lengths]
            if protocol.first_plan_only and any(length.note is None for length in lengths):
                continue
            for length in lengths:
                if length.note is not None:
                    reasons.setdefault(length.note, set()).add(length.length)
    finally:
        task.train(training)
    return [
        f"will not be measured at the end: length {', '.join(map(str, sorted(lengths)))} ({reason})"
        for reason, lengths in reasons.items()
    ]


def validation_seen_in_training(task: Task, source: DataSource) -> list[str]:
    """A line if validation scores what training may have seen, because there is too little to hold any out.
    The rows of an evaluation say it of themselves."""
    recipe = task.recipe
    if source.kind == "text" or recipe.trainer.limit_val_batches == 0:
        return []
    share = source.dataset("valid").seen_in_training(recipe.data.sequence_length)
    return [f"validation: training may have seen {share:.0%} of it: {TOO_FEW}"] if share else []
