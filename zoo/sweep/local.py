"""The runs of a sweep as processes of this machine: at most one for each of some environments at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from zoo.console import duration
from zoo.files import is_disk_full, raise_disk_full
from zoo.launch.children import describe_exit
from zoo.launch.devices import cpu_cores
from zoo.launch.ranks import PARENT
from zoo.recipe.trainer import TrainerConfig
from zoo.sweep.matrix import Run, note

VISIBLE, THREADS = "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"
LEAVE_SECONDS = 20.0
"""Seconds that a run has to stop at once."""
STOPPING = (
    "stopping: each run finishes its step and saves; once more to stop at once",
    "stopping at once; once more to kill",
    "killed",
)


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get(VISIBLE, ",".join(map(str, range(count))))
    return [name.strip() for name in named.split(",")][:count]


def environments(
    trainer: TrainerConfig, jobs: int | None, most: int, gpus: Sequence[str]
) -> list[dict[str, str]]:
    """The variables that the environment of each of the runs that go at once has besides those of the sweep:
    GPUs of its own, or a share of the CPU cores.

    Args:
        trainer: that of the recipe. Runs of several GPUs each get as many of their own.
        jobs: how many runs go at once; by default as many as the GPUs are enough for, and on a CPU one.
        most: how many runs there are.
        gpus: those that there are.
    """
    each = 0  # a list names GPUs by their number, which another choice of visible ones would change
    if trainer.accelerator in ("auto", "gpu", "cuda"):
        several = trainer.num_nodes == 1 and isinstance(trainer.devices, int) and trainer.devices > 0
        each = trainer.devices if several else int(trainer.devices in ("auto", "1", "-1", -1))
    groups = [gpus[i : i + each] for i in range(0, len(gpus) - each + 1, each)] if each else []
    count = max(1, min(jobs or len(groups), most))
    made = [{VISIBLE: ",".join(groups[i % len(groups)])} if groups else {} for i in range(count)]
    if count > 1 and THREADS not in os.environ:
        made = [{**one, THREADS: str(max(1, cpu_cores() // count))} for one in made]
    return made


@dataclass
class Outcome:
    """The results of the runs: `failed` has the reasons, `interrupted` whether the user stopped them."""

    finished: list[Run] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


@dataclass
class _Job:
    run: Run
    process: subprocess.Popen
    environment: Mapping[str, str]
    begins: int
    started: float = field(default_factory=time.monotonic)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class LocalSweep:
    """Runs all of `runs`, each in one of `environments` (what it has more than that of this process)."""

    def __init__(self, runs: Sequence[Run], environments: Sequence[Mapping[str, str]]):
        self.waiting, self.free = deque(runs), deque(environments)
        self.jobs: list[_Job] = []
        self.outcome = Outcome()
        self.total, self.started = len(runs), time.monotonic()

    def run(self) -> Outcome:
        requests = 0
        with _stop_requests() as requested:
            try:
                while self.jobs or (self.waiting and not requests):
                    while requests < requested():
                        note(STOPPING[min(requests, 2)])
                        for job in self.jobs:
                            job.signal(signal.SIGINT if requests < 2 else signal.SIGKILL)
                        requests += 1
                    if self.free and self.waiting and not requests:
                        self._start(self.waiting.popleft())
                    for job in [job for job in self.jobs if job.process.poll() is not None]:
                        self._ended(job, stopping=requests > 0)
                    time.sleep(0.05)
            finally:
                self._end_all()
        self.outcome.interrupted = requests > 0
        return self.outcome

    def _start(self, run: Run) -> None:
        try:
            run.log.parent.mkdir(parents=True, exist_ok=True)
            with raise_disk_full(run.log), run.log.open("ab") as log:
                log.write(f"$ {run.command_line()}\n".encode(errors="surrogateescape"))
                log.flush()
                environment = self.free.popleft()
                process = subprocess.Popen(
                    run.command(sys.executable),
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    env={**os.environ, PARENT: str(os.getpid()), **environment},
                    # A group of its own: Ctrl-C in the terminal reaches the sweep alone, which signals all
                    # processes of every run.
                    start_new_session=True,
                )  # fmt: skip
                self.jobs.append(_Job(run, process, environment, log.tell()))
        except OSError as error:
            if is_disk_full(error):
                raise  # no other run has room either
            self._failed(run, str(error))

    def _ended(self, job: _Job, stopping: bool) -> None:
        self.jobs.remove(job)
        self.free.append(job.environment)
        run, code = job.run, job.process.returncode
        if code == 0:
            self.outcome.finished.append(run)
            self._count(f"{run.name}: finished in {duration(time.monotonic() - job.started)}")
        elif stopping:
            note(f"{run.name}: stopped")
        else:
            memory = ": out of memory?" if code == -signal.SIGKILL else ""
            last = _last_line(job)
            self._failed(run, f"{describe_exit(code)}{memory}" + (f": {last}" if last else ""))

    def _failed(self, run: Run, why: str) -> None:
        self.outcome.failed[run.name] = why
        self._count(f"{run.name}: FAILED: {why}; log: {run.log}")

    def _end_all(self) -> None:
        """End all processes, whatever ended the sweep."""
        for job in self.jobs:
            job.signal(signal.SIGINT)
        limit = time.monotonic() + LEAVE_SECONDS
        for job in self.jobs:
            with suppress(subprocess.TimeoutExpired):
                job.process.wait(max(0.0, limit - time.monotonic()))
            job.signal(signal.SIGKILL)
            job.process.wait()

    def _count(self, text: str) -> None:
        done = len(self.outcome.finished) + len(self.outcome.failed)
        left = (time.monotonic() - self.started) / done * (self.total - done)
        note(f"[{done}/{self.total}] {text}" + (f"; about {duration(left)} left" if left else ""))


def _last_line(job: _Job) -> str:
    """The last line of what a process has printed; of a traceback the error, before its notes."""
    with job.run.log.open("rb") as file:
        file.seek(job.begins)
        text = file.read().decode(errors="replace")
    _, traceback, end = text.rpartition("Traceback (most recent call last):")
    lines = [line for line in end.splitlines() if line.strip() and not (traceback and line.startswith(" "))]
    return lines[0 if traceback else -1].strip() if lines else ""


@contextmanager
def _stop_requests() -> Iterator[Callable[[], int]]:
    """Count Ctrl-C, SIGTERM and SIGHUP instead of ending; yields a function that returns the count."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        # nohup ignores the end of the terminal.
        if not (number == signal.SIGHUP and handler == signal.SIG_IGN):
            signal.signal(number, lambda number, frame: received.append(number))
    try:
        yield lambda: len(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
