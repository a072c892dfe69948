"""Processes that go at the same time, each in a place of its own, and how they are stopped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from zoo.files import raise_disk_full
from zoo.sweep.command import as_text, with_this_python
from zoo.sweep.matrix import Run

PATIENCE = 20.0  # seconds that a process has to end after it was told to end at once


class Elsewhere(Exception):
    """Another sweep is at this run."""


@dataclass
class Job:
    """A run that is being computed."""

    run: Run
    process: subprocess.Popen
    place: Mapping[str, str]
    log: IO[bytes]
    begins: int
    started: float

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def last_line(self) -> str:
        """What the process said at its end: of a traceback the error, else its last line."""
        with Path(self.log.name).open("rb") as file:
            file.seek(self.begins)
            lines = [line.rstrip() for line in file.read().decode(errors="replace").splitlines()]
        lines = [line for line in lines if line]
        begins = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent")]
        if begins:
            # Notes on the error stand behind it.
            errors = [line for line in lines[begins[-1] + 1 :] if not line.startswith(" ")]
            lines = errors[:1] or lines
        return lines[-1].strip() if lines else ""


class Pool:
    """At most one process for each place."""

    def __init__(self, places: Sequence[Mapping[str, str]]):
        self.free = list(places)
        self.jobs: list[Job] = []

    def start(self, run: Run, command: list[str], log: IO[bytes]) -> Job:
        """Start a command; what it prints goes to the log. There must be a free place."""
        with raise_disk_full(Path(log.name)):
            log.write(f"$ {as_text(command)}\n".encode(errors="surrogateescape"))
            log.flush()
        begins = log.tell()
        place = self.free.pop(0)
        process = subprocess.Popen(
            with_this_python(command),
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env={**os.environ, **place},
            # A group of its own: Ctrl-C on the terminal reaches the sweep alone, and it tells all the
            # processes of a run.
            start_new_session=True,
        )  # fmt: skip
        job = Job(run, process, place, log, begins, time.monotonic())
        self.jobs.append(job)
        return job

    def ended(self) -> list[Job]:
        """The jobs that have ended since this was asked; their places are free again."""
        ended = [job for job in self.jobs if job.process.poll() is not None]
        for job in ended:
            self.jobs.remove(job)
            self.free.append(job.place)
            job.log.close()
        return ended

    def tell(self, number: int) -> None:
        """Send a signal to every process of every job."""
        for job in self.jobs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.process.pid, number)

    def end(self) -> None:
        """Leave no process behind: one that does not end by itself is killed."""
        self.tell(signal.SIGINT)
        limit = time.monotonic() + PATIENCE
        while self.jobs and time.monotonic() < limit:
            self.ended()
            time.sleep(0.05)
        self.tell(signal.SIGKILL)
        for job in self.jobs:
            job.process.wait()
        self.ended()


def claim_log(file: Path) -> IO[bytes]:
    """Open the log of a run for writing at its end, for this sweep alone.

    The lock is the open file's, so that the processes which write into it have it too: it ends with the last
    of them, even where the sweep itself was killed.

    Raises:
        Elsewhere: another sweep, or what it has started, is at this run.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    log = file.open("ab")
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.close()
        raise Elsewhere from None
    except OSError:
        pass  # a file system without locks
    return log


def is_elsewhere(file: Path) -> bool:
    """Whether another sweep is at the run with this log."""
    if not file.is_file():
        return False
    try:
        claim_log(file).close()
    except Elsewhere:
        return True
    return False


class Asked:
    """How often the user has asked to stop."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, number: int, frame: object) -> None:
        self.times += 1


@contextlib.contextmanager
def stop_signals() -> Iterator[Asked]:
    """Ctrl-C, SIGTERM and the end of the terminal are counted instead of obeyed."""
    asked = Asked()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        # Under nohup the end of the terminal is meant to be no matter.
        if not (number == signal.SIGHUP and handler == signal.SIG_IGN):
            signal.signal(number, asked)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
