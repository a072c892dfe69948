"""Which process of a launch this is, and who launched it, by the environment. Imports nothing heavy."""

from __future__ import annotations

import os
from typing import NamedTuple

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")


class Launcher(NamedTuple):
    """Who started the processes of a launch (`torchrun`, `slurm`, or `zoo` itself), and how many."""

    name: str
    processes_per_node: int
    num_nodes: int


def is_first_process() -> bool:
    """Whether this is the one process of its launch that writes and reports."""
    return all(int(os.environ.get(name) or 0) == 0 for name in RANK_VARIABLES)


def is_distributed() -> bool:
    """Whether this process was started together with others."""
    return find_launcher() is not None


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
