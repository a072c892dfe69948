"""`zoo fit`: a training with the tables, plots and the page of its evaluation."""

from __future__ import annotations

from pathlib import Path

from zoo.console import command
from zoo.evaluation.measurement import merged
from zoo.launch.ranks import is_first_process
from zoo.recipe import Recipe
from zoo.reports.evaluate import show_results
from zoo.training import fit as training
from zoo.training.run import Resume


def fit(recipe: Recipe, out: Path | None = None, resume: Resume = False) -> Path:
    """Train, evaluate at the recipe's lengths, and show the results: arguments as of `zoo.training.fit.fit`.

    Returns: the run folder.
    """
    trained = training.fit(recipe, out, resume)
    if is_first_process():
        try:
            if trained.measurements:
                show_results(trained.folder, merged(trained.measurements))
        except OSError as error:  # a full disk
            evaluate = command("evaluate", trained.folder)
            error.add_note(f"The run is trained and saved; measure it: {evaluate}")
            raise
        print(*trained.closing, sep="\n", flush=True)
    return trained.folder
