"""The processes of one command: which one this is, who started it, who reports. Imports nothing heavy."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from zoo.errors import InputError, RunError

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")
PARENT = "ZOO_PARENT"
"""The environment variable that has the process id of whoever started this process."""
WATCH = "exit-when-parent-dies"


class Launcher(NamedTuple):
    """Who started the processes of a launch (`torchrun`, `slurm`, or `zoo` itself), and how many."""

    name: str
    processes_per_node: int
    num_nodes: int


def is_first_process() -> bool:
    """Whether this is the one process of its launch that writes and reports."""
    return all(int(os.environ.get(name) or 0) == 0 for name in RANK_VARIABLES)


def find_launcher() -> Launcher | None:
    """The launcher of this process; None where it is the only one, or has not started the others yet."""
    numbers = {name: int(text) for name, text in os.environ.items() if text.isdecimal()}
    size = numbers.get("WORLD_SIZE", 1)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        here = numbers.get("LOCAL_WORLD_SIZE", size)
        return Launcher("torchrun", here, size // here) if size > 1 else None
    # Set for what srun starts; a batch script itself is one process, however many tasks it has asked for.
    tasks = numbers.get("SLURM_STEP_NUM_TASKS", 1)
    if tasks > 1 and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        nodes = numbers.get("SLURM_NNODES", 1)
        return Launcher("slurm", tasks // nodes, nodes)
    return Launcher("zoo", size, 1) if size > 1 and "LOCAL_RANK" in os.environ else None


def is_distributed() -> bool:
    """Whether this process was started together with others."""
    return find_launcher() is not None


def quiet_exit(code: int) -> SystemExit:
    """The exception that ends a process without a report: another process reports.

    Waits a moment: torchrun and SLURM end all once one has left, before the first has reported.
    """
    time.sleep(1.0)
    return SystemExit(code)


@contextmanager
def report_once() -> Iterator[None]:
    """Around what all processes of a launch do before their rendezvous.

    Raises:
        InputError, RunError: in the first process, and in one that it has started: that error is another one,
            since the first process got further.
        SystemExit: instead of them in all others, with the exit code of the command line.
    """
    try:
        yield
    except (InputError, RunError) as error:
        launcher = find_launcher()
        if is_first_process() or launcher is None or launcher.name == "zoo":
            raise
        raise quiet_exit(2 if isinstance(error, InputError) else 1) from None


def exit_when_parent_dies() -> None:
    """End this process as soon as the one that started it has ended, whatever it is doing then.

    Does nothing in a process that the user has started, and once is enough. Call it before anything slow: a
    process whose parent was killed alone would wait for it in a collective without end.
    """
    local_rank = int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)
    started = PARENT in os.environ or local_rank > 0 or "TORCHELASTIC_RUN_ID" in os.environ
    if not started or any(thread.name == WATCH for thread in threading.enumerate()):
        return
    # The parent may be gone before this process could ask who it is.
    watch_parent(int(os.environ.pop(PARENT, None) or os.getppid()))


def watch_parent(parent: int) -> None:
    """End this process as soon as its parent, the process of that id, has ended; it may have by now."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name=WATCH).start()
