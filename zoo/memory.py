"""Memory: how much was needed, whether it was enough, and how a CPU hands it out."""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

# Numbers of glibc's malloc.h, and the values that it starts with.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
USUAL_TRIM_THRESHOLD, USUAL_MMAP_MAX = 128 * 1024, 65536


def peak_memory_mb(device: torch.device) -> float:
    """The most memory held so far: on the GPU what torch allocated, on a CPU the process's resident size."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def restart_peak_memory(device: torch.device) -> None:
    """Measure from here on. On a CPU only Linux can; elsewhere the peak stays that of the whole process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            # proc(5): 5 resets the peak resident size.
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice; for a CPU torch has no error of its own.

    Linux mostly hands out more than it has and kills the process later: then there is no error to see.
    """
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Has glibc keep large freed blocks for the next training step, and give them back at the end.

    Otherwise every step's activations and logits are mapped, zeroed page by page and unmapped again, which
    takes a fifth of a training step on two cores (`scripts/benchmark_step.py --allocator`). Does nothing
    where there is another C library.
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
