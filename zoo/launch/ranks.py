"""The processes of one command: the rank of this one, and the launcher. Imports nothing heavy."""

from __future__ import annotations

import os
import threading
import time
from typing import NamedTuple

LAUNCH_VARIABLES = (
    "TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS", "SLURM_PROCID",
)  # fmt: skip
"""The environment variables by which a process or Lightning finds its launcher and rank."""
PARENT = "ZOO_PARENT"
"""Environment variable: the id of a process that this one must not outlive."""
INTERRUPTED = 130
"""The exit code of a command that the user stopped."""


class Launcher(NamedTuple):
    """The launcher of the processes (`torchrun` or `slurm`), their number, and the rank of this one."""

    name: str
    processes_per_node: int
    num_nodes: int
    rank: int = 0


def is_first_process() -> bool:
    """Whether this process is the one of its launch that writes and prints; without a launcher it is."""
    launcher = find_launcher()
    return launcher is None or launcher.rank == 0


def leave_launch() -> None:
    """Be a process of its own: no launcher and no rank is found from now on, by Lightning neither."""
    for name in LAUNCH_VARIABLES:
        os.environ.pop(name, None)


def find_launcher() -> Launcher | None:
    """The launcher of this process; None without one."""
    numbers = {name: int(text) for name, text in os.environ.items() if text.isdecimal()}
    if "TORCHELASTIC_RUN_ID" in os.environ:
        size = numbers.get("WORLD_SIZE", 1)
        here = numbers.get("LOCAL_WORLD_SIZE", size)
        return Launcher("torchrun", here, size // here, numbers.get("RANK", 0))
    # Set by srun; a batch script itself is one process for any number of tasks.
    tasks = numbers.get("SLURM_STEP_NUM_TASKS", 1)
    if tasks > 1 and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        nodes = numbers.get("SLURM_NNODES", 1)
        return Launcher("slurm", tasks // nodes, nodes, numbers.get("SLURM_PROCID", 0))
    return None


def may_set_handlers() -> bool:
    """Python allows signal handlers in the main thread only."""
    return threading.current_thread() is threading.main_thread()


def exit_when_parent_dies() -> None:
    """End this process with its torchrun agent or its sweep: a killed parent cannot stop it."""
    parent = os.environ.pop(PARENT, None)
    if parent is None and "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    number = int(parent or os.getppid())

    def watch() -> None:
        while os.getppid() == number:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
