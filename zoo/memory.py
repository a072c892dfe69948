"""Memory: peak use, free memory, out-of-memory errors, and limits on allocation."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None

# Numbers of glibc's malloc.h, and the values that it starts with.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
USUAL_TRIM_THRESHOLD, USUAL_MMAP_MAX = 128 * 1024, 65536

RESERVE = 256 * 2**20
"""Bytes that no evaluation is given: for what is not counted as data, and for other processes."""

SYSTEM = Path("/")

SIGNS = (
    "DefaultCPUAllocator",
    "std::bad_alloc",
    "can't start new thread",
    "dnnl_out_of_memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""Parts of the messages of out-of-memory errors that have no class of their own."""


def peak_memory_mb(device: torch.device) -> float:
    """The most memory held so far, in MiB: on the GPU what torch allocated, on a CPU the process's resident
    size; NaN on Windows."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    if resource is None:
        return float("nan")
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def restart_peak_memory(device: torch.device) -> None:
    """Measure from here on. On a CPU only Linux can; elsewhere it counts from the process's start."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            # proc(5): 5 resets the peak resident size.
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory; for a CPU torch has no error class of its own.

    Linux mostly hands out more than it has and kills the process later: then there is no error to see, unless
    `allocations_bounded`.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def free_memory(device: torch.device) -> int | None:
    """Bytes that may still be allocated; None if the system does not tell.

    On Linux that is what could be had without swapping, or less where a control group (a container, a SLURM
    job) allows less, without a reserve.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        status = (SYSTEM / "proc/meminfo").read_text(encoding="ascii")
        free = int(re.search(r"^MemAvailable:\s+(\d+) kB$", status, re.MULTILINE)[1]) * 1024
    except (OSError, TypeError):
        return None
    return max(0, min([free, *_left_to_groups()]) - RESERVE)


def _left_to_groups() -> Iterator[int]:
    """Bytes that each control group of this process, and each one above it, still allows."""
    try:
        groups = (SYSTEM / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    root = SYSTEM / "sys/fs/cgroup"
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, files = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = root / "memory"
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        own = mount / path.strip("/")
        # Inside a container the path may be the host's, and the group then is the mount itself.
        for group in (own, *own.parents) if own.is_dir() else (mount,):
            if not group.is_relative_to(mount):
                break
            with suppress(OSError, ValueError, TypeError):
                yield _left(group, *files)


def _left(group: Path, limit: str, usage: str, cached: str) -> int:
    """Limit less usage, where cached files do not count: they make room. "max" is no number."""
    most, used = (int((group / name).read_text(encoding="ascii")) for name in (limit, usage))
    statistics = (group / "memory.stat").read_text(encoding="ascii")
    return most - used + int(re.search(rf"^{cached} (\d+)$", statistics, re.MULTILINE)[1])


@contextmanager
def allocations_bounded(processes: int = 1, most: int | None = None) -> Iterator[int | None]:
    """Lets an allocation beyond what is free fail with an error, where Linux would later kill the process.

    The bound is on private memory that can be written; files that are mapped to be read do not count. It is
    lifted at the end. Does nothing on other systems, nor for the memory of a GPU.

    Args:
        processes: how many on this machine do the same at the same time, each with its share.
        most: a limit in bytes, even if more is free.

    Yields: bytes that may be allocated; None if there is no limit.
    """
    free = free_memory(torch.device("cpu"))
    # macOS has the limit and does not keep it.
    if free is None or resource is None or not sys.platform.startswith("linux"):
        yield None
        return
    # OpenMP ends the process where it cannot start its threads: they are started before.
    torch.ones(torch.get_num_threads() * 2**16).sin_()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    share = free // processes
    held = _data_size()
    bounds = [held + (share if most is None else min(share, most))]
    bounds += [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield max(0, min(bounds) - held)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_size() -> int:
    """Bytes of this process that the limit counts."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"^VmData:\s+(\d+) kB$", status, re.MULTILINE)[1]) * 1024


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Has glibc keep large freed blocks for the next step or block, and give them back at the end.

    Otherwise every step's activations and logits are mapped, zeroed page by page and unmapped again, which
    takes a fifth of a training step on two cores (`scripts/benchmark_step.py --allocator`), and two thirds of
    an evaluation that writes tables of scores. Does nothing where there is another C library.
    """
    try:
        libc = ctypes.CDLL(None)
        mallopt, trim = libc.mallopt, libc.malloc_trim
    except (AttributeError, OSError, TypeError):
        yield
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        mallopt(M_MMAP_MAX, USUAL_MMAP_MAX)
        mallopt(M_TRIM_THRESHOLD, USUAL_TRIM_THRESHOLD)
        trim(0)
