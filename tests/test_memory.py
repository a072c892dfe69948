"""Errors that mean out of memory, and the peak of a device."""

import torch

from zoo.memory import is_out_of_memory, peak_memory_mb, restart_peak_memory


def test_out_of_memory_errors_are_recognized():
    cpu = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"
    for error in (RuntimeError(cpu), RuntimeError("std::bad_alloc"), MemoryError(),
                  torch.OutOfMemoryError("CUDA")):  # fmt: skip
        assert is_out_of_memory(error)
    for error in (RuntimeError("shapes do not match"), ValueError("std::bad_alloc"), OSError(28, "No space")):
        assert not is_out_of_memory(error)


def test_the_peak_of_a_gpu_is_that_of_its_device(monkeypatch):
    device, restarted = torch.device("cuda", 1), []
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda one: {device: 5 * 2**20}[one])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", restarted.append)
    assert peak_memory_mb(device) == 5
    restart_peak_memory(device)
    assert restarted == [device]
