"""Jobs of SLURM: their options for a recipe, and `sbatch`."""

from __future__ import annotations

import shlex
import subprocess

from zoo.errors import InputError, Problem, RunError
from zoo.launch.devices import number_of_devices
from zoo.recipe.trainer import TrainerConfig

SRUN = "srun --kill-on-bad-exit=1"
"""The start of all processes of a job. Without the option, the others wait for a failed one for ever."""


def job_options(trainer: TrainerConfig) -> list[str]:
    """The options of `sbatch` that a training needs: a task for each device, and a warning before the end.

    Raises:
        InputError: several nodes, and a number of devices that only a node knows.
    """
    devices = number_of_devices(trainer.devices)
    if devices is None and trainer.num_nodes > 1:
        message = f"{trainer.devices}, on {trainer.num_nodes} nodes; give the devices of one node as a number"
        raise InputError(Problem(message, key="trainer.devices"))
    # One task for all devices of a node: `fit` starts a process for each.
    tasks = [f"--nodes={trainer.num_nodes}", f"--ntasks-per-node={devices or 1}"]
    return [*tasks, "--requeue", "--open-mode=append", "--signal=SIGUSR1@180"]


def sbatch(*options: str) -> str:
    """Submit a job; returns its id. Raises RunError where `sbatch` is missing, or refuses."""
    try:
        done = subprocess.run(["sbatch", "--parsable", *options], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"sbatch cannot be run: {error}") from error
    if done.returncode:
        raise RunError(f"sbatch {shlex.join(options)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip().partition(";")[0]  # the name of the cluster may follow
