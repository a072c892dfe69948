"""Devices of runs that go at the same time: GPUs of its own for each, or a share of the CPU cores."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from zoo.launch.children import cpu_cores
from zoo.recipe.trainer import TrainerConfig

VISIBLE, THREADS = "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"


def environments(
    trainer: TrainerConfig, jobs: int | None, most: int, environment: Mapping[str, str]
) -> list[dict[str, str]]:
    """The variables that the environment of each of the runs that go at once has besides those of the sweep.

    Args:
        trainer: that of the recipe. Runs of several GPUs each get as many of their own.
        jobs: how many runs go at once; by default as many as the GPUs are enough for, and on a CPU one.
        most: how many runs there are.
        environment: that of the sweep, whose settings of GPUs and threads are kept.
    """
    gpus = visible_gpus(environment) if trainer.accelerator in ("auto", "gpu", "cuda") else []
    chosen = trainer.devices
    if not isinstance(chosen, int) or trainer.num_nodes > 1:
        # A list names GPUs by their number, which another choice of visible ones would change.
        each = 1 if chosen in ("auto", "1", "-1") else 0
    else:
        each = 1 if chosen == -1 else chosen
    groups = [gpus[i : i + each] for i in range(0, len(gpus) - each + 1, each)] if each else []
    count = max(1, min(jobs or len(groups), most))
    made = [{VISIBLE: ",".join(groups[i % len(groups)])} if groups else {} for i in range(count)]
    if count > 1 and THREADS not in environment:
        made = [{**one, THREADS: str(max(1, cpu_cores() // count))} for one in made]
    return made


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """The NVIDIA GPUs that a process may use, as CUDA_VISIBLE_DEVICES names them; torch is not asked."""
    if VISIBLE in environment:
        named = [name.strip() for name in environment[VISIBLE].split(",")]
        # CUDA stops reading at the first that does not exist.
        end = next((i for i, name in enumerate(named) if name in ("", "-1")), len(named))
        return named[:end]
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return listed_gpus(done.stdout)


def listed_gpus(text: str) -> list[str]:
    """The identifiers in the output of `nvidia-smi -L`; of a GPU that is split (MIG), its parts.

    A process can use only one of the parts that it sees, so each part counts as a GPU.
    """
    found: list[str] = []
    for kind, name in re.findall(r"^\s*(GPU|MIG)\b.*\(UUID: ([^)\s]+)\)", text, flags=re.MULTILINE):
        if kind == "MIG" and found and found[-1].startswith("GPU-"):
            found.pop()
        found.append(name)
    return found
