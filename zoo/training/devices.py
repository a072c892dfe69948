"""Whether the devices that a recipe asks for are there, and can train it."""

from __future__ import annotations

import os

from lightning.pytorch.accelerators import CUDAAccelerator, MPSAccelerator, XLAAccelerator

from zoo.errors import InputError, Problem
from zoo.launch.devices import batch_fault, context_fault, cpu_precision_fault, devices_taken
from zoo.launch.ranks import Launcher, find_launcher
from zoo.recipe import Recipe


def validate_world_size(recipe: Recipe) -> None:
    """Compare the devices of a recipe with the processes that were started, and its batch with the devices.

    Raises InputError. Without this check processes would wait for others that never start.
    """
    trainer, launcher = recipe.trainer, find_launcher() or Launcher("this command", 1, 1)
    devices = devices_taken(trainer.devices, trainer.accelerator)
    problems = []
    # Several runs of one device in a job: each in a step of its own.
    srun = f"srun --ntasks={devices * trainer.num_nodes} --exact"
    starter = srun if launcher.name == "slurm" else "torchrun (`zoo fit` starts devices)"
    if launcher.name == "slurm" and "SLURM_NTASKS_PER_NODE" not in os.environ:
        fault = f"slurm has started {launcher.processes_per_node} processes without --ntasks-per-node"
        hint = f"give srun, or the job, --ntasks-per-node={launcher.processes_per_node}"
        problems.append(Problem(f"{fault}, which Lightning reads: {hint}", key="trainer.devices"))
    for key, wanted, started, unit in (
        ("trainer.devices", devices, launcher.processes_per_node, "processes on each machine"),
        ("trainer.num_nodes", trainer.num_nodes, launcher.num_nodes, "machines"),
    ):
        if wanted != started:
            fault = f"{wanted}, but {launcher.name} has started {started} {unit}"
            hint = f"give --set {key}={started}, or start {wanted} with {starter}"
            problems.append(Problem(f"{fault}: {hint}", key=key))
    sharing, nodes = trainer.context_parallel, trainer.num_nodes
    if not problems and (fault := context_fault(sharing, devices, nodes)):
        problems.append(Problem(fault, key="trainer.context_parallel"))
    accumulate = trainer.accumulate_grad_batches
    if not problems and (fault := batch_fault(recipe.data.batch_size, devices, nodes, accumulate, sharing)):
        problems.append(Problem(fault, key="data.batch_size"))
    if problems:
        raise InputError(problems)


def validate_precision(recipe: Recipe) -> None:
    """Raises InputError where `accelerator: auto` is a CPU, which does not train in this precision."""
    fault = cpu_precision_fault(recipe.trainer.precision) if recipe.trainer.accelerator == "auto" else None
    if fault and not any(kind.is_available() for kind in (CUDAAccelerator, MPSAccelerator, XLAAccelerator)):
        raise InputError(Problem(fault, key="trainer.precision"))
