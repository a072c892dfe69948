"""Whether a recipe fits the devices that there are, and the processes that a launcher has started."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from lightning.pytorch.accelerators import CUDAAccelerator, MPSAccelerator, XLAAccelerator

from zoo.errors import InputError, Problem
from zoo.launch.ranks import Launcher, find_launcher, report_once
from zoo.recipe import Recipe
from zoo.recipe.rules import batch_fault, cpu_precision_fault, number_of_devices


def validate_world_size(recipe: Recipe) -> None:
    """Compare a recipe with the devices that are there, and with the processes that a launcher has started.

    Raises:
        InputError: in the first process, a batch that they cannot share equally, or another number of them
            than the recipe has. Left alone, processes would wait for others that never come.
        SystemExit: the same, in all others.
    """
    problems = list(_launch_problems(recipe))
    trainer, devices = recipe.trainer, devices_of(recipe)
    fault = batch_fault(recipe.data.batch_size, devices, trainer.num_nodes, trainer.accumulate_grad_batches)
    if fault and not problems:
        problems.append(Problem(fault, key="data.batch_size"))
    if problems:
        with report_once():
            raise InputError(problems)


def validate_precision(recipe: Recipe) -> None:
    """Raises InputError where `accelerator: auto` is a CPU, which does not train in this precision."""
    fault = cpu_precision_fault(recipe.trainer.precision) if recipe.trainer.accelerator == "auto" else None
    if fault and not any(kind.is_available() for kind in (CUDAAccelerator, MPSAccelerator, XLAAccelerator)):
        raise InputError(Problem(fault, key="trainer.precision"))


def devices_of(recipe: Recipe) -> int:
    """The devices of each machine; all that there are where the recipe leaves it open."""
    number = number_of_devices(recipe.trainer.devices)
    if number is not None:
        return number
    on_cpu = recipe.trainer.accelerator == "cpu" or not torch.cuda.is_available()
    return 1 if on_cpu else torch.cuda.device_count()


def _launch_problems(recipe: Recipe) -> Iterator[Problem]:
    launcher = _lightning_launcher()
    if launcher is None:
        return
    name, here, nodes = launcher
    if name == "slurm" and here * nodes > 1 and "SLURM_NTASKS_PER_NODE" not in os.environ:
        yield Problem(
            f"slurm has started {here * nodes} processes without --ntasks-per-node, by which Lightning goes: "
            f"give srun, or the job, --ntasks-per-node={here}",
            key="trainer.devices",
        )
    devices, num_nodes = devices_of(recipe), recipe.trainer.num_nodes
    if devices != here:
        started = f"{here} process{'' if here == 1 else 'es'} on each machine"
        hint = f"give --set trainer.devices={here}, or start {devices}"
        if name == "slurm" and here == 1:
            hint += f" (`srun` starts them, of a job with --ntasks-per-node={devices})"
        yield Problem(f"{devices}, but {name} has started {started}: {hint}", key="trainer.devices")
    if num_nodes != nodes:
        hint = f"give --set trainer.num_nodes={nodes}, or start {num_nodes}"
        message = f"{num_nodes}, but {name} has started processes on {nodes} machines: {hint}"
        yield Problem(message, key="trainer.num_nodes")


def _lightning_launcher() -> Launcher | None:
    """Which launcher Lightning will go by: its name, processes on each machine, machines. None: its own."""
    several = find_launcher()
    if several is not None:
        return None if several.name == "zoo" else several
    if dist.is_available() and dist.is_torchelastic_launched():
        return Launcher("torchrun", 1, 1)
    # Lightning goes by SLURM in a batch script too, where no more than this process was started.
    slurm = "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")
    return Launcher("slurm", 1, 1) if slurm else None
