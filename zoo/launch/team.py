"""The processes that share one evaluation, and the exchange of their results."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from zoo.errors import InputError, RunError
from zoo.launch.ranks import find_launcher
from zoo.models.sequence_split import SequenceSplit

PATIENCE = timedelta(days=7)
"""Time that a process waits for another. The loss of a process is noticed at once."""


@dataclass
class Team:
    """The processes of one evaluation, to be used in a `with` block.

    Attributes:
        rank: number of this process; process 0 prints, shows bars and writes.
        size: number of processes.
        device: the device of this process.
    """

    rank: int
    size: int
    device: torch.device
    local_rank: int = 0
    group: dist.ProcessGroup | None = None
    gpu_group: dist.ProcessGroup | None = None

    def use(self, accelerator: str) -> None:
        """Compute on the device of a recipe's `trainer.accelerator` from now on."""
        self.device = device_for(accelerator, self.local_rank)

    def gather(self, own: Any) -> list[Any]:
        """The `own` of every process, by rank. A collective. Raises RunError if another process has ended."""
        every = [own] * self.size
        if self.size > 1:
            try:
                dist.all_gather_object(every, own, group=self.group)
            except RuntimeError as error:
                raise RunError("another process of this run has ended") from error
        return every

    def barrier(self) -> None:
        """Wait for all processes."""
        self.gather(None)

    def sequence_split(self) -> SequenceSplit:
        """These processes as those that compute each sequence together. A collective."""
        if self.device.type == "cuda" and self.gpu_group is None:
            self.gpu_group = dist.new_group(backend="nccl", timeout=PATIENCE)
        group = self.gpu_group if self.device.type == "cuda" else self.group
        return SequenceSplit(self.rank, self.size, group, self.group)

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *error: object) -> None:
        if self.size > 1:
            dist.destroy_process_group()


def alone(device: torch.device) -> Team:
    """A team of this process only."""
    return Team(0, 1, device)


def device_for(accelerator: str, local_rank: int = 0) -> torch.device:
    """The device of a process: the CPU if the recipe asks for it or there is no GPU."""
    if accelerator == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def join(devices: int | None = None, accelerator: str = "auto") -> Team:
    """Wait for the other processes that torchrun or SLURM has started.

    Args:
        devices: the processes on this machine that the user asked for; None takes those of the launcher.
        accelerator: a recipe's `trainer.accelerator`.

    Raises InputError for more devices than this machine has, or another number than were started.
    """
    launcher = find_launcher()
    here = launcher.processes_per_node if launcher else 1
    if devices not in (None, here):
        started = f"{launcher.name} has started {here}" if launcher else "there is one"
        raise InputError(f"--devices {devices}: processes on this machine: {started}")
    if device_for(accelerator).type == "cuda" and here > torch.cuda.device_count():
        advice = "for processes on the CPU, --set trainer.accelerator=cpu"
        raise InputError(f"--devices {here}: GPUs on this machine: {torch.cuda.device_count()}; {advice}")
    if launcher is None or here * launcher.num_nodes == 1:
        return alone(device_for(accelerator))
    from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

    environment = SLURMEnvironment() if launcher.name == "slurm" else TorchElasticEnvironment()
    os.environ |= {"MASTER_ADDR": environment.main_address, "MASTER_PORT": str(environment.main_port)}
    rank, local_rank = launcher.rank, environment.local_rank()
    size = here * launcher.num_nodes
    # Plain objects are exchanged: gloo serves processes with GPUs too, and notices a lost process at once.
    dist.init_process_group("gloo", rank=rank, world_size=size)
    group = dist.new_group(backend="gloo", timeout=PATIENCE)
    return Team(rank, size, device_for(accelerator, local_rank), local_rank, group)
