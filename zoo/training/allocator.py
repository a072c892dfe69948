"""How the C library hands out memory on a CPU."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Numbers of glibc's malloc.h."""


def keep_freed_memory() -> None:
    """Tell glibc to keep large freed blocks for the next step instead of giving them back to the system.

    Otherwise every step's activations and logits are mapped, zeroed page by page and unmapped again: a fifth
    of a training step on two cores (`scripts/benchmark_step.py --allocator`). Does nothing on other C
    libraries.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, -1)
