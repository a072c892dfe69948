"""The runs of a sweep as a SLURM array, a task for each, and the comparison as a job that comes after it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from zoo.errors import RunError
from zoo.files import atomic_write
from zoo.recipe.rules import number_of_devices
from zoo.sweep.runs import Run

RUNS = """\
#!/bin/sh
#SBATCH --job-name={name}
#SBATCH --array=1-{count}{throttle}
#SBATCH --output={folder}/slurm-%A_%a.out
#SBATCH --nodes={nodes} --ntasks-per-node={tasks}
#SBATCH --requeue --open-mode=append --signal=SIGUSR1@180
{options}
eval "srun --kill-on-bad-exit=1 $(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {folder}/commands.txt)"
"""
COMPARISON = """\
#!/bin/sh
#SBATCH --job-name={name}_comparison
#SBATCH --output={folder}/comparison.out
{options}
{command}
"""


def submit(
    name: str, runs: Sequence[Run], compare: list[str], folder: Path, options: str, at_once: int | None
) -> tuple[str, str]:
    """Write the scripts into `folder` and submit them. Returns the ids of the array and of the comparison.

    Args:
        compare: the command that compares.
        options: of `sbatch`, for both jobs: partition, time, GPUs.
        at_once: how many tasks of the array may run at the same time.

    Raises:
        RunError: `sbatch` is missing, or refuses; nothing is submitted then, or only the array.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trainer = runs[0].recipe.trainer
    more = "\n".join(f"#SBATCH {option}" for option in shlex.split(options))
    commands = [
        f"{shlex.join(run.command(sys.executable))} >>{shlex.quote(str(run.log))} 2>&1\n" for run in runs
    ]
    runs[0].log.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "commands.txt", "".join(commands))
    array = RUNS.format(
        name=name,
        count=len(runs),
        throttle=f"%{at_once}" if at_once else "",
        folder=shlex.quote(str(folder)),
        nodes=trainer.num_nodes,
        tasks=number_of_devices(trainer.devices) or 1,
        options=more,
    )
    comparison = COMPARISON.format(
        name=name, folder=shlex.quote(str(folder)), options=more, command=shlex.join(compare)
    )
    atomic_write(folder / "runs.sh", array)
    atomic_write(folder / "comparison.sh", comparison)
    first = _sbatch(folder / "runs.sh")
    return first, _sbatch(folder / "comparison.sh", f"--dependency=afterany:{first}")


def _sbatch(script: Path, *options: str) -> str:
    command = ["sbatch", "--parsable", *options, str(script)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"sbatch cannot be run ({error}); the script is {script}") from error
    if done.returncode:
        raise RunError(f"{shlex.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip().partition(";")[0]  # the name of the cluster may follow
