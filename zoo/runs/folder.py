"""The folder of a run, chosen once and never twice.

recipe.yaml  card.json  checkpoints/  metrics.csv  tensorboard/  tokenizer.json  evaluation/
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from zoo.console import command
from zoo.errors import InputError, Problem, shorten
from zoo.files import atomic_write
from zoo.launch.ranks import is_first_process
from zoo.recipe import Recipe, dump, recipe_of_run
from zoo.recipe.diff import MAX_STEPS, refused_on_resume
from zoo.recipe.tree import read_file
from zoo.schedules import last_other_rate, lr_factor

RUNS = Path("runs")
RECIPE = "recipe.yaml"
TUNED = "tuned.json"
"""The grid from which a sweep has chosen the run."""
CARD = "card.json"
METRICS = "metrics.csv"
CHECKPOINTS = Path("checkpoints")
LAST = CHECKPOINTS / "last.ckpt"
BEST = CHECKPOINTS / "best.ckpt"
EXPORTED = Path("model.safetensors")
"""The weights in a folder that `export` has made."""
RESULTS = Path("evaluation") / "lengths.json"
LOCK = ".lock"
"""The file in a folder that is locked; it stays there."""
PATIENCE = 2.0
"""Seconds. A process that was killed a moment ago keeps its lock until its memory is given back."""
# Temporary files of `atomic_file`.
_LEFTOVER = re.compile(r"\..+(\.\d+)+")


def kept_checkpoint(folder: Path, step: int) -> Path:
    """The checkpoint of a step that `checkpoint.keep_every_n_steps` keeps."""
    return folder / CHECKPOINTS / f"step-{step}.ckpt"


def kept_checkpoints(folder: Path) -> dict[int, Path]:
    """The kept checkpoints of a run by step, ascending."""
    steps = [path.stem.removeprefix("step-") for path in (folder / CHECKPOINTS).glob("step-*.ckpt")]
    return {step: kept_checkpoint(folder, step) for step in sorted(map(int, filter(str.isdecimal, steps)))}


def validate_free(folder: Path) -> None:
    """Raises InputError where a run cannot begin: something is in the folder, or it cannot be written."""
    # Nothing but what a launch left there that was killed before it wrote its recipe.
    held = folder.is_dir() and [path.name for path in folder.iterdir() if path.name != LOCK]
    if held and (folder / RECIPE).is_file():
        raise InputError(
            f"{folder} already holds a run, and a run never overwrites another: "
            f"choose another folder with --out, or continue it with `zoo fit --resume`"
        )
    if held and not all(map(_LEFTOVER.fullmatch, held)):
        raise InputError(f"{folder} is not empty; choose another folder")
    above = folder
    while not above.exists():
        above = above.parent
    if not above.is_dir():
        raise InputError(f"{above} is a file; a run needs a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: a run cannot be written there: no permission to write in {above}")


def new_run(recipe: Recipe, out: Path | None) -> Path:
    """Make a folder for a new run: `out`, or runs/NAME, or the first of runs/NAME-2, -3 ... that is free.

    Raises:
        InputError: `out` holds something already, or cannot be written.
    """
    if out is not None:
        validate_free(out)
        _make(out)
        return out
    folder, numbers = RUNS / recipe.name, count(2)
    while not _make(folder):
        folder = RUNS / f"{recipe.name}-{next(numbers)}"
    return folder


def _make(folder: Path) -> bool:
    """Make a folder; of several processes that try, one does. Returns whether it was this one."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        return False
    except OSError as error:
        raise InputError(f"{folder}: a run cannot be written there: {error.strerror}") from error
    return True


class RunLock:
    """Keeps every other process from writing in a run folder, until this one releases it or ends, however.

    A process that is forked meanwhile does not share the lock. Where locks do not work (some network file
    systems) nothing is locked.

    Raises:
        InputError: another process has it, and still has it after some seconds.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        # A soft lock, which is a file and nothing else, would outlive a kill.
        self._lock = FileLock(folder / LOCK, timeout=PATIENCE, thread_local=False, fallback_to_soft=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise InputError(f"{folder}: another process is at work on this run") from None
        except (NotImplementedError, OSError):
            pass

    def release(self) -> None:
        """Let other processes write there again."""
        self._lock.release()


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes were writing in a run folder that is held: files that never had a name."""
    for inside in (folder, folder / CHECKPOINTS):
        for path in inside.glob(".*"):
            if _LEFTOVER.fullmatch(path.name) and not path.is_dir():
                path.unlink(missing_ok=True)


def existing_run(
    recipe: Recipe, out: Path | None, required: bool = True
) -> tuple[Path, dict[str, Any]] | tuple[None, None]:
    """The folder of the run to resume and its stored recipe: `out`, or the newest of this recipe's name.

    Raises:
        InputError: there is none although it is required, or its recipe cannot be read.
    """
    # NAME-2 is the second run of NAME, or the first of a recipe called NAME-2.
    own_name = re.compile(re.escape(recipe.name) + r"(-\d+)?")
    files = [file for file in RUNS.glob(f"*/{RECIPE}") if own_name.fullmatch(file.parent.name)]
    if out is not None:
        files = [out / RECIPE] if (out / RECIPE).is_file() else []
    runs = [(file.parent, stored_recipe(file.parent)) for file in files]
    runs = [run for run in runs if out is not None or run[1].get("name") == recipe.name]
    if not runs:
        if required:
            raise InputError(f"nothing to resume: there is no run in {out or RUNS / recipe.name}")
        return None, None
    return max(runs, key=lambda run: (run[0] / RECIPE).stat().st_mtime)


def validate_same_recipe(stored: dict[str, Any], recipe: Recipe, where: Path) -> None:
    """Raises InputError where a recipe would make another run than the stored one, found in `where`.

    Whether `trainer.max_steps` may change depends on the steps done: `max_steps_problem`.
    """
    problems = [
        Problem(f"the run has {shorten(repr(old))}, the recipe now {shorten(repr(new))}", key, str(where))
        for key, old, new in refused_on_resume(recipe_of_run(stored).as_dict(), recipe)
    ]
    if problems:
        last = problems[-1]
        problems[-1] = Problem(f"{last.message}; a resumed run keeps its recipe", last.key, last.where)
        raise InputError(problems)


def max_steps_problem(folder: Path, stored: dict[str, Any], recipe: Recipe, done: int) -> Problem | None:
    """The reason why a run cannot be resumed with the `max_steps` of a recipe; None where it can.

    It can where the learning rates of the steps done so far are those of a run that had this `max_steps` from
    its beginning: then both are the same run. Nothing else that decides a weight depends on `max_steps`.

    Args:
        folder: the run's.
        stored: the recipe that it had so far.
        done: its optimizer steps so far.
    """
    new, config = recipe.trainer.max_steps, recipe.optimizer
    old = stored["trainer"]["max_steps"]
    if done > new:
        message = f"{new} is below the {done} steps that the run has done already"
        return Problem(message, key=MAX_STEPS, where=str(folder))
    step = last_other_rate(config, done, old, new)
    if step is None:
        return None
    again = ["fit", "--recipe", folder / RECIPE]
    rest = command(*again, "--set", f"init_from={folder}", "--set", f"{MAX_STEPS}={max(1, new - done)}")
    anew = command(*again, "--set", "optimizer.schedule=wsd", "--set", f"{MAX_STEPS}={new}")
    then, now = (config.lr * lr_factor(config, step, steps) for steps in (old, new))
    lines = [
        f"the run has done {done} of {old} steps at learning rates that {new} steps do not have (schedule "
        f"{config.schedule}, step {step + 1}: {then:.3g}, and {now:.3g} where trainer.max_steps is {new})",
        f"train on from its weights, with a schedule of its own: {rest}",
        f"or train anew with a schedule that can be extended until its rate falls (wsd; constant: always): "
        f"{anew}",
    ]
    if done < old:
        finish = command(*again, "--out", folder, "--resume")
        lines.insert(1, f"finish it as it is, with {MAX_STEPS}={old}: {finish}")
    return Problem("\n  ".join(lines), key=MAX_STEPS, where=str(folder))


def stored_recipe(folder: Path) -> dict[str, Any]:
    """The resolved recipe in a run folder, as plain data. Raises InputError where it cannot be read."""
    return read_file(folder / RECIPE).values


def write_recipe(folder: Path, recipe: Recipe) -> None:
    atomic_write(folder / RECIPE, dump(recipe))


def runs_among(paths: Iterable[Path]) -> list[Path]:
    """The paths without folders of anything but runs, such as the logs of jobs in `runs/*`; names those on
    stderr. All paths where no run would be left."""
    paths, marks = list(paths), (RECIPE, CARD, LAST, LAST.name, EXPORTED, f"*/{CARD}", f"*/{LAST}")
    kept = [path for path in paths if not path.is_dir() or any(any(path.glob(str(mark))) for mark in marks)]
    if kept and (others := [str(path) for path in paths if path not in kept]) and is_first_process():
        print(f"skipped, not a run: {', '.join(others)}", file=sys.stderr)
    return kept or paths


def validate_present(paths: Iterable[Path]) -> None:
    """Raises InputError for all run folders and checkpoints that are not there, with the nearest of each."""
    missing = [path for path in paths if not path.exists()]
    if missing:
        what = "no such run folder or checkpoint"
        raise InputError(Problem(f"{what}{nearest_run_hint(path)}", where=str(path)) for path in missing)


def nearest_run_hint(path: Path) -> str:
    """`; did you mean runs/NAME?`: the run of the nearest name next to the path or in runs/; else ""."""
    known: dict[str, Path] = {}
    for folder in (RUNS, path.parent):
        with suppress(OSError, ValueError):
            known |= {one.name: one for one in sorted(folder.iterdir()) if (one / RECIPE).is_file()}
    near = difflib.get_close_matches(path.name[:255], known, n=1)
    return f"; did you mean {os.path.normpath(known[near[0]])}?" if near else ""
