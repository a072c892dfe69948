"""The devices of this machine, and how many a command takes. Imports nothing heavy by itself."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

SHARED = 1.25
"""The load average of a core from which processes wait for one. A run before this one leaves about 1."""


def cpu_cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_of_shared_cores() -> str:
    """`7.2 on 2 cores`, the load average where processes wait for a core of this machine; else ""."""
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    return f"{load:.1f} on {cores} cores" if load > SHARED * cores else ""


def processor() -> str:
    """The model of the CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine(device: str, count: int) -> str:
    """The devices that decide the speed of a training: the GPUs, or the CPU with its threads.

    Args:
        device: the kind of device, as torch names it.
        count: the processes of the training, each with a device of its own.
    """
    import torch

    if device == "cuda":
        return f"{count} x {torch.cuda.get_device_name()}"
    return f"{processor()}, {count} x {torch.get_num_threads()} threads"


def number_of_devices(devices: Any) -> int | None:
    """The devices of each machine that a `trainer.devices` means; None for auto and -1, which mean all."""
    if isinstance(devices, str) and "," in devices:
        devices = [part for part in devices.split(",") if part.strip()]
    if isinstance(devices, list | tuple):
        return len(devices) or None
    if isinstance(devices, str):
        devices = int(devices) if devices.strip().isdecimal() else -1
    return devices if devices > 0 else None


def devices_taken(devices: Any, accelerator: str) -> int:
    """The devices of each machine that a `trainer.devices` takes: where it leaves that open, all."""
    number = number_of_devices(devices)
    if number is not None or accelerator == "cpu":
        return number or 1
    import torch  # only to count GPUs

    return torch.cuda.device_count() if torch.cuda.is_available() else 1


def batch_fault(batch: int, devices: int, nodes: int, accumulate: int, sharing: int = 1) -> str | None:
    """The error of a global batch that cannot be divided evenly; `sharing` devices read the same part."""
    parts = devices * nodes * accumulate // sharing
    if batch % parts == 0:
        return None
    shared = f" / context_parallel {sharing}" if sharing > 1 else ""
    return (
        f"a batch of {batch} cannot be divided over {parts} (devices {devices} x num_nodes {nodes} x "
        f"accumulate_grad_batches {accumulate}{shared}); take a multiple of {parts}"
    )


def context_fault(sharing: int, devices: int, nodes: int) -> str | None:
    """The error of devices that cannot form groups of `sharing`, each of which computes a sequence."""
    if devices * nodes % sharing == 0:
        return None
    return (
        f"{sharing} devices cannot compute a sequence together: it must divide devices {devices} x num_nodes "
        f"{nodes}"
    )


def cpu_precision_fault(precision: str) -> str | None:
    """The error of training in a precision that a CPU does not have."""
    # Lightning computes in bf16 there, with a warning.
    if precision != "16-mixed":
        return None
    return "16-mixed needs a GPU: on a CPU it would be computed in bf16-mixed; choose bf16-mixed or 32-true"
