"""Commands as processes of this machine, each with its own GPUs or its share of the CPU cores."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zoo.console import duration
from zoo.launch.devices import cpu_cores
from zoo.launch.ranks import PARENT
from zoo.recipe.trainer import TrainerConfig

VISIBLE, THREADS = "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Command:
    """The words of a command after `python -m zoo`; its output goes into the log, if there is one."""

    name: str
    words: Sequence[str]
    log: Path | None = None

    def line(self, python: str = "python") -> str:
        """The command as one line for a shell."""
        return shlex.join([python, "-m", "zoo", *self.words])


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get(VISIBLE, ",".join(map(str, range(count))))
    return [name.strip() for name in named.split(",")][:count]


def environments(
    trainer: TrainerConfig, jobs: int | None, most: int, gpus: Sequence[str]
) -> list[dict[str, str]]:
    """The environment variables of each of the concurrent runs: its own GPUs, or its share of the CPU cores.

    Args:
        trainer: that of the recipe. Runs of several GPUs each get as many of their own.
        jobs: concurrent runs; by default as many as the GPUs are enough for, and on a CPU one.
        most: number of runs.
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


def run_all(commands: Sequence[Command], places: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Run commands, at most one in each of `places` at a time; returns the reason of each failed one.

    Raises:
        KeyboardInterrupt: after the first Ctrl-C, when every run has saved; a second one kills them.
    """
    waiting, free, failed, began = deque(commands), deque(places), {}, time.monotonic()
    going: dict[subprocess.Popen, tuple[Command, Mapping[str, str], float]] = {}
    try:
        while going or waiting:
            while free and waiting:
                command, place = waiting.popleft(), free.popleft()
                going[_start(command, place)] = command, place, time.monotonic()
            for process in [one for one in going if one.poll() is not None]:
                command, place, started = going.pop(process)
                free.append(place)
                text = f"finished in {duration(time.monotonic() - started)}"
                if process.returncode:
                    failed[command.name] = why = _reason(process.returncode, command.log)
                    text = f"FAILED: {why}" + (f"; log: {command.log}" if command.log else "")
                done = len(commands) - len(waiting) - len(going)
                left = (time.monotonic() - began) / done * (len(commands) - done)
                text += f"; about {duration(left)} left" if left else ""
                note(f"[{done}/{len(commands)}] {command.name}: {text}")
            time.sleep(0.05)
    except KeyboardInterrupt:
        note("stopping: each run finishes its step and saves; once more to kill")
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGKILL):
            for process in going:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            with suppress(KeyboardInterrupt):
                for process in going:
                    process.wait()
    return failed


def _start(command: Command, place: Mapping[str, str]) -> subprocess.Popen:
    log = None
    if command.log:
        command.log.parent.mkdir(parents=True, exist_ok=True)
        log = command.log.open("ab", buffering=0)
        log.write(f"$ {command.line()}\n".encode(errors="surrogateescape"))
    # A session of its own: Ctrl-C in the terminal reaches the sweep alone, which signals all processes of
    # every run.
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "zoo", *command.words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT if log else None,
            env={**os.environ, PARENT: str(os.getpid()), **place}, start_new_session=True,
        )  # fmt: skip
    finally:
        if log:
            log.close()


def _reason(code: int, log: Path | None) -> str:
    """The exit code, and the last line of a log."""
    why = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
    why += ": out of memory?" if code == -signal.SIGKILL else ""
    lines = log.read_text(errors="replace").strip().splitlines() if log else []
    return ": ".join([why, *lines[-1:]])


def note(text: str) -> None:
    """Print progress on stderr: stdout has the results."""
    print(text, file=sys.stderr, flush=True)
