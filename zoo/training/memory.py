"""How much memory was needed, and whether it was enough."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch


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
    """Whether an error says that memory did not suffice; for a CPU torch has no error of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
