"""One evaluation by several processes: who they are, and how they hand results to one another.

`zoo evaluate RUN --devices 2` starts the command a second time; under torchrun and SLURM all processes are
there from the beginning. Lightning Fabric knows which it is, and lets them meet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from subprocess import Popen, TimeoutExpired
from typing import Any

import torch
import torch.distributed as dist

from zoo.errors import InputError, RunError
from zoo.evaluation.meeting import meeting
from zoo.processes.launch import launch
from zoo.processes.signals import handled
from zoo.processes.telling import silent, told_once

PATIENCE = timedelta(days=7)
"""How long one process may be ahead of another. That the other is gone shows at once, not by waiting."""

LEAVE_SECONDS = 20.0

LOST = "another process of this evaluation has ended without a word; was it killed for want of memory?"


@dataclass(frozen=True)
class Fault:
    """Why a process cannot go on, as the others are told: an exit code of the command line, and a text."""

    code: int
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        if isinstance(error, InputError):
            return cls(2, str(error))
        if isinstance(error, KeyboardInterrupt):
            return cls(130, str(error))
        return cls(1, str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}")

    def error(self) -> BaseException:
        return {2: InputError, 130: KeyboardInterrupt}.get(self.code, RunError)(self.text)


class Team:
    """The processes of one evaluation, as one of them sees them. Its `with` block ends for all together.

    What ends one of them ends all: the others get the error in place of what they wait for. The first process
    tells it, and the rest leave in silence, by SystemExit with the command line's exit code.

    Attributes:
        rank: which process this is, from 0; only process 0 prints, shows bars and writes.
        size: how many there are.
        local_size: how many of them are on this machine.
        device: where this one computes.
    """

    def __init__(
        self, rank: int, size: int, device: torch.device, local_rank: int = 0, local_size: int | None = None
    ):
        self.rank, self.size, self.device = rank, size, device
        self.local_size = size if local_size is None else local_size
        self._local_rank = local_rank
        self._group: dist.ProcessGroup | None = None
        self._started: list[Popen] = []
        self._over = self._interrupted = False

    def use(self, accelerator: str) -> None:
        """Compute from now on where a recipe's `trainer.accelerator` says."""
        self.device = device_for(accelerator, self._local_rank)

    def gather(self, own: Any) -> list[Any]:
        """What each process gave, by rank: the same list for all. Every process must call it.

        Raises:
            InputError, RunError, KeyboardInterrupt: in the first process, what ended another one.
            SystemExit: in the others.
        """
        if self.size == 1:
            return [own]
        every = self._exchange(own)
        for rank, fault in enumerate(every):
            if isinstance(fault, Fault):
                self._over = True
                text = f"process {rank}: {fault.text}" if fault.text else ""
                raise self._leave(Fault(fault.code, text))
        if self._interrupted:
            raise KeyboardInterrupt
        return every

    def barrier(self) -> None:
        """Wait for all of them."""
        self.gather(None)

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.size == 1:
            return
        try:
            if error is None:
                self.barrier()
            elif not self._over:
                self._over = True
                with suppress(RunError, SystemExit):
                    self._exchange(Fault.of(error))
        finally:
            self._close()
        if self.rank and isinstance(error, InputError | RunError | KeyboardInterrupt):
            raise self._leave(Fault.of(error)) from None

    def _exchange(self, own: Any) -> list[Any]:
        every: list[Any] = [None] * self.size
        try:
            with self._held_interruption():
                dist.all_gather_object(every, own, group=self._group)
        except RuntimeError as error:
            self._over = True
            raise self._leave(Fault(1, LOST)) from error
        return every

    @contextmanager
    def _held_interruption(self) -> Iterator[None]:
        """A signal waits for the end of an exchange: the others could not follow if one left amid it.

        A second one does not wait.
        """

        def hold(*given: Any) -> None:
            if self._interrupted:
                self._over = True
                raise KeyboardInterrupt
            self._interrupted = True

        with handled(hold):
            yield

    def _leave(self, fault: Fault) -> BaseException:
        """What this process ends with."""
        if self.rank == 0:
            return fault.error()
        return silent(fault.code)

    def _close(self) -> None:
        dist.destroy_process_group()
        for process in self._started:
            try:
                process.wait(LEAVE_SECONDS)
            except TimeoutExpired:
                process.kill()
        if self._started:
            # Lightning noted in the environment that this process has others; it has none any more.
            for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                os.environ.pop(name, None)


def alone(device: torch.device) -> Team:
    """A team of one, which needs no process group."""
    return Team(0, 1, device)


def device_for(accelerator: str, local_rank: int = 0) -> torch.device:
    """Where a process computes: on a CPU if the recipe asks for it or there is no GPU."""
    if accelerator == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def join(devices: int = 1, accelerator: str = "auto") -> Team:
    """Meet the other processes; start them if nobody has.

    The command is started again for each further device, so all that can be wrong with it should be found
    before. Under torchrun and SLURM they decide how many processes there are, whatever `devices` says, unless
    it contradicts them.

    Args:
        devices: processes on this machine.
        accelerator: a recipe's `trainer.accelerator`.

    Raises:
        InputError: more devices than there are, or another number than were started.
        SystemExit: the same, in all processes but the first.
    """
    started = launch()
    if started is None and devices == 1:
        return alone(device_for(accelerator))
    with told_once():
        _must_fit(devices, accelerator, started)
    name, per_node, num_nodes = started or ("lightning", devices, 1)
    return _meet(name, per_node, num_nodes, accelerator)


def _must_fit(devices: int, accelerator: str, started: tuple[str, int, int] | None) -> None:
    if started is None:
        there = torch.cuda.device_count()
        if device_for(accelerator).type == "cuda" and devices > there:
            gpus = "1 GPU" if there == 1 else f"{there} GPUs"
            raise InputError(
                f"--devices {devices}: there {'is' if there == 1 else 'are'} {gpus}; "
                f"processes on the CPU are had with --set trainer.accelerator=cpu"
            )
    elif devices not in (1, started[1]):
        raise InputError(
            f"--devices {devices}: {started[0]} has started {started[1]} processes on this machine"
        )


def _meet(name: str, per_node: int, num_nodes: int, accelerator: str) -> Team:
    from lightning.fabric import Fabric
    from lightning.fabric.plugins.environments import (
        LightningEnvironment,
        SLURMEnvironment,
        TorchElasticEnvironment,
    )
    from lightning.fabric.strategies import DDPStrategy

    from zoo.training.quiet import quieten

    quieten()
    environments = {
        "torchrun": TorchElasticEnvironment, "slurm": SLURMEnvironment, "lightning": LightningEnvironment,
    }  # fmt: skip
    try:
        # Only plain objects travel, so gloo on the CPU serves processes with GPUs too; other than NCCL it
        # notices at once when one of them is gone.
        fabric = Fabric(
            accelerator="cpu",
            strategy=DDPStrategy(process_group_backend="gloo"),
            devices=per_node,
            num_nodes=num_nodes,
            plugins=[environments[name]()],
        )
        children = getattr(fabric.strategy.launcher, "procs", [])
        with meeting(lambda: [*children], LOST):
            fabric.launch()
            group = dist.new_group(backend="gloo", timeout=PATIENCE)
    except ValueError as error:
        raise InputError(f"the processes of this evaluation do not fit together: {error}") from error
    local_rank = fabric.local_rank
    team = Team(
        fabric.global_rank, fabric.world_size, device_for(accelerator, local_rank), local_rank, per_node
    )
    team._group, team._started = group, children
    return team
