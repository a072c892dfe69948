"""The matrix is run: what is finished is skipped, what is not is taken up, and in the end all is compared."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem, RunError
from zoo.reports.write import must_be_ours
from zoo.runs.folder import RUNS, validate_free
from zoo.sweep.command import as_text, compare_command, fit_command, sweep_command
from zoo.sweep.course import Course, Outcome, count_of_runs, log_of
from zoo.sweep.matrix import Run, matrix
from zoo.sweep.places import places
from zoo.sweep.pool import Pool, is_elsewhere
from zoo.sweep.standing import Standing, State, remove_empty, standing


def sweep(
    recipe: Path,
    encodings: Sequence[Any],
    seeds: Sequence[int] = (0,),
    sets: Sequence[str] = (),
    out: Path = RUNS,
    jobs: int | None = None,
    print_commands: bool = False,
) -> None:
    """Train one recipe with every encoding and every seed, and compare.

    Args:
        recipe: the file.
        encodings: as a recipe has them.
        seeds: of initial weights, data order and dropout.
        sets: `key=value` texts laid over the recipe, for all runs.
        out: the folder in which the runs' folders lie. Their logs are in its `logs`, the comparison in its
            RECIPE_comparison.
        jobs: runs that go at the same time; by default one for each visible GPU, and on a CPU one.
        print_commands: print the command of each run that is not finished, and run nothing.

    Raises:
        InputError: every problem of every run, before anything is started; runs that cannot be compared.
        RunError: some run failed; all others are done.
        KeyboardInterrupt: stopped on demand; its text says how to go on.
    """
    called, runs = matrix(recipe, encodings, seeds, sets, out)
    into = out / f"{called}_comparison"
    found = _found(runs, into, may_remove=not print_commands)
    if print_commands:
        _print_commands(runs, found, into)
        return
    again = as_text(sweep_command(recipe, encodings, seeds, sets, out, jobs))
    outcome = Outcome([run for run in runs if found[run.name].state is State.FINISHED])
    todo = [run for run in runs if run not in outcome.finished]
    if todo:
        spots = places(runs[0].recipe.trainer, jobs, len(todo), os.environ)
        print(_opening(called, runs, found, len(spots)), file=sys.stderr, flush=True)
        interrupted = Course(todo, Pool(spots), outcome).run()
        if interrupted:
            raise KeyboardInterrupt(
                f"interrupted; {len(outcome.finished)} of {len(runs)} runs are finished, the others "
                f"go on from their last checkpoints; continue: {again}"
            )
    else:
        print(f"all {count_of_runs(len(runs))} of {called} are finished already", file=sys.stderr, flush=True)
    not_compared = _compare([run for run in runs if run in outcome.finished], into)
    if outcome.failed:
        told = outcome.told(len(runs), again)
        raise RunError("\n".join([told, *([f"not compared: {not_compared}"] if not_compared else [])]))
    if not_compared:
        raise not_compared


def _found(runs: Sequence[Run], into: Path, may_remove: bool) -> dict[str, Standing]:
    """How far each run is. Raises InputError with everything that is in the way of any."""
    found: dict[str, Standing] = {}
    problems: list[Problem] = []
    try:
        must_be_ours(into)
    except InputError as error:
        problems += error.problems
    for run in runs:
        try:
            found[run.name] = standing(run.folder, run.recipe)
            if found[run.name].state is State.NEW and not problems:
                validate_free(run.folder)
            if found[run.name].state is State.EMPTY and not is_elsewhere(log_of(run)):
                remove_empty(run.folder, only_ask=True)
                if not may_remove:
                    raise InputError(
                        f"{run.folder}: the run stopped before its first checkpoint; --print-commands "
                        f"removes nothing, so do it first: {as_text(['rm', '-r', str(run.folder)])}"
                    )
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return found


def _print_commands(runs: Sequence[Run], found: dict[str, Standing], into: Path) -> None:
    for run in runs:
        state = found[run.name].state
        if is_elsewhere(log_of(run)):
            print(f"# {run.name}: another sweep is at it; left to that one", file=sys.stderr)
        elif state is State.FINISHED:
            print(f"# {run.name}: finished", file=sys.stderr)
        else:
            print(as_text(fit_command(run, state)), flush=True)
    print(f"# then: {as_text(compare_command(list(runs), into))}", file=sys.stderr)


def _compare(finished: Sequence[Run], into: Path) -> InputError | RunError | None:
    """Compare; what is in the way of it."""
    if not finished:
        return None
    from zoo.reports.compare import compare

    try:
        compare([run.folder for run in finished], out=into)
    except (InputError, RunError) as error:
        return error
    return None


def _opening(called: str, runs: Sequence[Run], found: dict[str, Standing], at_once: int) -> str:
    labels = ", ".join(dict.fromkeys(run.label for run in runs))
    seeds = ", ".join(dict.fromkeys(str(run.seed) for run in runs))
    counts = Counter(found[run.name].state.value for run in runs)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    return (
        f"sweep of {called}: {labels}; seeds {seeds}: {count_of_runs(len(runs))} ({states}), "
        f"{at_once} at a time; logs in {log_of(runs[0]).parent}"
    )
