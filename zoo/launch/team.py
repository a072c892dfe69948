"""One evaluation by several processes: their ranks and devices, and the exchange of results.

`zoo evaluate RUN --devices 2` starts the command a second time; under torchrun and SLURM all processes are
there from the beginning.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments import SLURMEnvironment

from zoo.errors import InputError, RunError
from zoo.launch.children import Children, Supervisor
from zoo.launch.devices import cpu_cores
from zoo.launch.ranks import Launcher, find_launcher, is_first_process, quiet_exit, report_once
from zoo.launch.signals import INTERRUPTED, NOTHING_WRITTEN, signal_handler

PATIENCE = timedelta(days=7)
"""How long one process may wait for another. The loss of a process is noticed at once, not by it."""

LOST = "another process of this evaluation has ended without a message; was it killed for lack of memory?"


class _Failure(NamedTuple):
    """Why a process cannot go on, as sent to the others: an exit code of the command line and a message."""

    code: int
    text: str

    @classmethod
    def of(cls, error: BaseException) -> _Failure:
        if isinstance(error, InputError | KeyboardInterrupt):
            return cls(2 if isinstance(error, InputError) else INTERRUPTED, str(error))
        return cls(1, str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}")


class Team:
    """The processes of one evaluation. Its `with` block ends in all of them together.

    An error in one ends all: the others receive it instead of the results that they wait for. The first
    process reports it, and the rest end by SystemExit with the command line's exit code.

    Attributes:
        rank: which process this is, from 0; only process 0 prints, shows bars and writes.
        size: how many there are.
        local_size: how many of them are on this machine.
        device: where this one computes.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        device: torch.device,
        local_rank: int = 0,
        local_size: int | None = None,
        group: dist.ProcessGroup | None = None,
        children: Children | None = None,
    ):
        self.rank, self.size, self.device = rank, size, device
        self.local_size = size if local_size is None else local_size
        self._local_rank, self._group, self._children = local_rank, group, children
        self._over = self._interrupted = False

    def use(self, accelerator: str) -> None:
        """Compute from now on on the device of a recipe's `trainer.accelerator`."""
        self.device = device_for(accelerator, self._local_rank)

    def gather(self, own: Any) -> list[Any]:
        """The `own` of each process, by rank: the same list in all. Every process must call it.

        Raises:
            InputError, RunError, KeyboardInterrupt: in the first process, the error of another one.
            SystemExit: in the others.
        """
        if self.size == 1:
            return [own]
        every = self._exchange(own)
        for rank, fault in enumerate(every):
            if isinstance(fault, _Failure):
                self._over = True
                text = f"process {rank}: {fault.text}" if fault.text else ""
                raise self._leave(fault.code, text)
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
                    self._exchange(_Failure.of(error))
        finally:
            dist.destroy_process_group()
            if self._children is not None:
                self._children.close()
        if self.rank and isinstance(error, InputError | RunError | KeyboardInterrupt):
            raise self._leave(*_Failure.of(error)) from None

    def _exchange(self, own: Any) -> list[Any]:
        every: list[Any] = [None] * self.size
        try:
            with self._deferred_interruption():
                dist.all_gather_object(every, own, group=self._group)
        except RuntimeError as error:
            self._over = True
            raise self._leave(1, LOST) from error
        return every

    @contextmanager
    def _deferred_interruption(self) -> Iterator[None]:
        """Defer a signal to the end of an exchange: the others would wait for a process that left during it.

        A second signal is not deferred.
        """

        def defer(*args: Any) -> None:
            if self._interrupted:
                self._over = True
                raise KeyboardInterrupt
            self._interrupted = True

        with signal_handler(defer):
            yield

    def _leave(self, code: int, text: str) -> BaseException:
        """The exception with which this process ends: the first one reports it."""
        if self.rank:
            return quiet_exit(code)
        return {2: InputError, INTERRUPTED: KeyboardInterrupt}.get(code, RunError)(text)


def alone(device: torch.device) -> Team:
    """A team of one, which needs no process group."""
    return Team(0, 1, device)


def device_for(accelerator: str, local_rank: int = 0) -> torch.device:
    """Where a process computes: on a CPU if the recipe asks for it or there is no GPU."""
    if accelerator == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def join(devices: int = 1, accelerator: str = "auto", children: Children | None = None) -> Team:
    """Join the other processes; start them if no launcher has.

    The command is started again for each further device, so check its arguments before. Under torchrun and
    SLURM the launcher decides the number of processes; `devices` may only agree with it.

    Args:
        devices: processes on this machine.
        accelerator: a recipe's `trainer.accelerator`.
        children: those that were started ahead.

    Raises:
        InputError: more devices than there are, or another number than were started.
        SystemExit: the same, in all processes but the first.
    """
    launcher = find_launcher()
    if launcher is None and devices == 1:
        return alone(device_for(accelerator))
    with report_once():
        there = torch.cuda.device_count()
        if launcher is None and device_for(accelerator).type == "cuda" and devices > there:
            advice = "for processes on the CPU, --set trainer.accelerator=cpu"
            raise InputError(f"--devices {devices}: GPUs on this machine: {there}; {advice}")
        if launcher is not None and devices not in (1, launcher.processes_per_node):
            started = f"{launcher.name} has started {launcher.processes_per_node} processes on this machine"
            raise InputError(f"--devices {devices}: {started}")
    launcher = launcher or Launcher("zoo", devices, 1)
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = str(max(1, cpu_cores() // launcher.processes_per_node))
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    children = children or Children()

    def report(how: str | None) -> str | None:
        return LOST if how else NOTHING_WRITTEN if is_first_process() else None

    supervisor = Supervisor(children, report)
    # In a thread: torch waits for the others in native code, where Python handles no signal.
    with signal_handler(lambda *given: supervisor.end(None)), ThreadPoolExecutor(1) as thread:
        supervisor.start()
        if find_launcher() is None:
            children.start(launcher.processes_per_node)
        rendezvous = thread.submit(_rendezvous, launcher)
        while not rendezvous.done():
            time.sleep(0.02)
        supervisor.stop()
        rank, local_rank, group = rendezvous.result()
    size, device = launcher.processes_per_node * launcher.num_nodes, device_for(accelerator, local_rank)
    return Team(rank, size, device, local_rank, launcher.processes_per_node, group, children)


def _rendezvous(launcher: Launcher) -> tuple[int, int, dist.ProcessGroup]:
    """Wait for all processes. Returns the rank, the rank on this machine, and their group."""
    if launcher.name == "slurm":
        slurm = SLURMEnvironment()
        os.environ |= {"MASTER_ADDR": slurm.main_address, "MASTER_PORT": str(slurm.main_port)}
        rank, local_rank = slurm.global_rank(), slurm.local_rank()
    else:
        local_rank = int(os.environ["LOCAL_RANK"])
        rank = int(os.environ["RANK"]) if launcher.name == "torchrun" else local_rank
    # Only plain objects are exchanged, so gloo on the CPU serves processes with GPUs too; unlike NCCL it
    # notices at once when one of them is gone.
    size = launcher.processes_per_node * launcher.num_nodes
    dist.init_process_group("gloo", rank=rank, world_size=size)
    return rank, local_rank, dist.new_group(backend="gloo", timeout=PATIENCE)
