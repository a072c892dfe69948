"""A training as a job of SLURM."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from zoo.errors import RunError
from zoo.files import atomic_write
from zoo.launch.slurm import SRUN, job_options, sbatch
from zoo.recipe import Recipe
from zoo.runs.folder import RECIPE, existing_run, new_run, validate_same_recipe
from zoo.training.auto import choose_auto
from zoo.training.run import Resume


def submit(
    recipe: Recipe, file: Path, sets: Sequence[str], out: Path | None, resume: Resume, options: str
) -> str:
    """Write the job script of a run, and submit it; returns the message for the user.

    The job begins the run, or resumes it after each requeue. Its folder is chosen here.

    Args:
        recipe: that of `file` with `sets` laid over it.
        out, resume: as of `fit`.
        options: of `sbatch`, such as the partition, the time and the GPUs.

    Raises:
        InputError: a folder or devices that cannot be used.
        RunError: `sbatch` is missing, or refuses; the script is written.
    """
    needed = [*job_options(recipe.trainer), *shlex.split(options)]
    folder, stored = existing_run(recipe, out, resume is True) if resume else (None, None)
    if folder:
        validate_same_recipe(stored, choose_auto(recipe, stored), folder / RECIPE)
    folder = folder or new_run(recipe, out)
    log = folder.parent / "logs" / f"{folder.name}.log"
    script = log.with_suffix(".sh")
    command = [sys.executable, "-m", "zoo", "fit", "--recipe", str(file)]
    command += [part for text in sets for part in ("--set", text)]
    command += ["--out", str(folder), "--resume", "auto"]
    needed = [f"--job-name={folder.name}", f"--output={log}", *needed]
    lines = [
        "#!/bin/sh",
        *(f"#SBATCH {shlex.quote(one)}" for one in needed),
        f"{SRUN} {shlex.join(command)}",
    ]
    script.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(script, "\n".join(lines) + "\n")
    try:
        job = sbatch(str(script))
    except RunError as error:
        with suppress(OSError):  # a run that is resumed
            folder.rmdir()
        raise RunError(f"{error}; the job script is {script}") from error
    return f"job {job} trains {recipe.name}; run folder {folder}, job script {script}, output in {log}"
