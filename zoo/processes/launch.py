"""Which process of a launch this is, and who started it, as the environment tells. Imports nothing heavy."""

from __future__ import annotations

import os

# Where a launcher tells a process which one it is.
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")


def is_first_process() -> bool:
    """Whether this is the one process of its launch that writes and tells.

    Lightning starts the processes of further devices by running the same command again, torchrun and SLURM
    start all at once; each numbers them by variables of its own.
    """
    return all(int(os.environ.get(rank) or 0) == 0 for rank in RANKS)


def among_others() -> bool:
    """Whether this process was started together with others, by torchrun, SLURM or the first of them."""
    return launch() is not None


def launch() -> tuple[str, int, int] | None:
    """Who started several processes, how many on each machine, and on how many machines."""
    numbers = {name: int(text) for name, text in os.environ.items() if text.isdecimal()}
    size = numbers.get("WORLD_SIZE", 1)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        here = numbers.get("LOCAL_WORLD_SIZE", size)
        return ("torchrun", here, size // here) if size > 1 else None
    # Set for what srun starts; a batch script by itself is one process, however many tasks it has asked for.
    tasks = numbers.get("SLURM_STEP_NUM_TASKS", 1)
    if tasks > 1 and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        nodes = numbers.get("SLURM_NNODES", 1)
        return "slurm", tasks // nodes, nodes
    return ("lightning", size, 1) if size > 1 and "LOCAL_RANK" in os.environ else None
