"""Memory: peak use, out-of-memory errors, and the allocator's setting for training."""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

# Numbers of glibc's malloc.h, and the default values.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
DEFAULT_TRIM_THRESHOLD, DEFAULT_MMAP_MAX = 128 * 1024, 65536


def peak_memory_mb(device: torch.device) -> float:
    """The peak memory so far in MiB: what torch allocated on a GPU, the resident size of the process on a
    CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def restart_peak_memory(device: torch.device) -> None:
    """Measure the peak from now on. On a CPU this works on Linux only."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            # proc(5): 5 resets the peak resident size.
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory. torch has no class for that of a CPU."""
    signs = ("DefaultCPUAllocator", "std::bad_alloc", "CUBLAS_STATUS_ALLOC_FAILED")
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Let glibc keep large freed blocks during the block of code, and return them at its end.

    Otherwise the activations of every step are mapped, zeroed page by page and unmapped again: a fifth of a
    training step on two cores, and two thirds of an evaluation with tables of scores. Other C libraries stay.
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
        mallopt(M_MMAP_MAX, DEFAULT_MMAP_MAX)
        mallopt(M_TRIM_THRESHOLD, DEFAULT_TRIM_THRESHOLD)
        trim(0)
