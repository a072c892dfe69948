"""Memory: how much is free, and the bound that turns a killed process into an error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from zoo import memory
from zoo.memory import (
    allocations_bounded,
    free_memory,
    is_out_of_memory,
    peak_memory_mb,
    restart_peak_memory,
)

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
MIB = 2**20

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux keeps the bound")


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A made-up machine: files and their contents."""

    def system(**files):
        monkeypatch.setattr(memory, "SYSTEM", tmp_path)
        for name, content in files.items():
            file = tmp_path / name.replace("__", "/").replace("_dot_", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)

    return system


MACHINE = {"proc__meminfo": f"MemTotal: 999999999 kB\nMemAvailable:   {8 * 2**20} kB\nSwapFree: 5 kB\n"}
V2 = "sys__fs__cgroup__jobs__memory_dot_"
V1 = "sys__fs__cgroup__memory__memory_dot_"


def test_free_memory_is_that_of_the_system(system):
    assert free_memory(CPU) is None or free_memory(CPU) > 0
    system()
    assert free_memory(CPU) is None
    system(**MACHINE)
    assert free_memory(CPU) == 8 * 2**30 - memory.RESERVE


def test_a_control_group_that_allows_less_counts(system):
    """The group of version 2 allows 3 GiB, holds 2, and half of that are cached files."""
    files = {
        "proc__self__cgroup": "0::/jobs/mine\n",
        V2 + "max": str(3 * 2**30),
        V2 + "current": str(2 * 2**30),
        V2 + "stat": f"anon 1\ninactive_file {2**30}\n",
        # Its own group sets no limit: the one above does.
        "sys__fs__cgroup__jobs__mine__memory_dot_max": "max",
        "sys__fs__cgroup__jobs__mine__memory_dot_current": "5",
        "sys__fs__cgroup__jobs__mine__memory_dot_stat": "inactive_file 0\n",
    }
    system(**MACHINE, **files)
    assert free_memory(CPU) == 2 * 2**30 - memory.RESERVE


def test_a_control_group_of_version_1_counts_under_the_path_of_the_host(system):
    """In a container its path is the host's, and is not to be found."""
    files = {
        "proc__self__cgroup": "9:cpu:/docker/abc\n4:hugetlb,memory:/docker/abc\n",
        V1 + "limit_in_bytes": str(2 * 2**30),
        V1 + "usage_in_bytes": str(2**30),
        V1 + "stat": "inactive_file 7\ntotal_inactive_file 4096\n",
    }
    system(**MACHINE, **files)
    assert free_memory(CPU) == 2**30 + 4096 - memory.RESERVE


# In a fresh process: what a training has freed before, the C library may hand out again within any bound.
BOUND = """
import resource
import torch
from zoo import memory
from zoo.memory import allocations_bounded, is_out_of_memory

MIB = 2**20
before = resource.getrlimit(resource.RLIMIT_DATA)
memory.free_memory = lambda device: 100 * MIB


def is_refused(allocate):
    try:
        allocate()
    except (RuntimeError, MemoryError) as error:
        assert is_out_of_memory(error), error
        return True
    return False


with allocations_bounded():
    assert torch.ones(50 * MIB // 4).sum() > 0
    assert is_refused(lambda: torch.empty(200 * MIB // 4)) and is_refused(lambda: bytearray(200 * MIB))
    assert torch.ones(50 * MIB // 4).sum() > 0, "what an error has freed can be had again"
    with allocations_bounded(processes=4):
        assert is_refused(lambda: torch.empty(50 * MIB // 4)), "a quarter of 100 MiB is less"
    torch.empty(50 * MIB // 4)
assert resource.getrlimit(resource.RLIMIT_DATA) == before
torch.empty(200 * MIB // 4)
"""


@pytest.mark.launch
@linux
def test_a_bound_makes_an_error_and_is_lifted_again():
    command = [sys.executable, "-c", BOUND]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@linux
def test_the_size_of_a_bound(monkeypatch):
    import resource

    monkeypatch.setattr(memory, "free_memory", lambda device: 100 * MIB)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    for processes, most, bound in ((1, None, 100), (4, None, 25), (1, 30, 30), (4, 30, 25)):
        arguments = {"processes": processes} | ({"most": most * MIB} if most else {})
        with allocations_bounded(**arguments) as size:
            assert size == bound * MIB, arguments
    with allocations_bounded(most=30 * MIB), allocations_bounded() as size:
        assert size <= 30 * MIB  # an inner bound is not above the outer one
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_other_systems_have_no_bound(monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    with allocations_bounded() as size:
        assert size is None


@linux
def test_mapped_files_and_threads_work_under_a_bound(tmp_path, monkeypatch):
    import mmap
    from concurrent.futures import ThreadPoolExecutor

    file = tmp_path / "large"
    with file.open("wb") as made:
        made.truncate(400 * MIB)
    monkeypatch.setattr(memory, "free_memory", lambda device: 150 * MIB)
    with allocations_bounded(), file.open("rb") as opened:
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert len(mapped) == 400 * MIB and mapped[-1] == 0
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(lambda n: torch.ones(n).sum().item(), range(1, 5))) == [1, 2, 3, 4]


def test_only_a_lack_of_memory_is_recognized_as_one():
    torch_says = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"
    for error in (RuntimeError(torch_says), RuntimeError("std::bad_alloc"), MemoryError(),
                  torch.OutOfMemoryError("CUDA"), RuntimeError("can't start new thread")):  # fmt: skip
        assert is_out_of_memory(error)
    for error in (RuntimeError("shapes do not match"), ValueError("std::bad_alloc"), OSError(28, "No space")):
        assert not is_out_of_memory(error)


def test_without_the_module_resource_a_bound_does_nothing(monkeypatch):
    """As on Windows, where there is no module `resource`."""
    monkeypatch.setattr(memory, "resource", None)
    with allocations_bounded():
        torch.empty(8 * MIB)
    assert memory.peak_memory_mb(CPU) != memory.peak_memory_mb(CPU)  # not a number


# A command as a user gives it, on a machine that has little left.
LITTLE = """
import sys
from zoo import memory
memory.free_memory = lambda device: {free}
sys.exit(__import__("zoo.cli").cli.main(sys.argv[1:]))
"""


@pytest.mark.launch
@linux
def test_a_length_that_does_not_fit_has_a_note_and_the_others_their_rows(zoo_command, here):
    sets = ["model.d_ff=4096", "trainer.max_steps=1", "data.documents=400", "evaluate.lengths=[16]"]
    done = zoo_command("fit", "--recipe", "text.yaml", *[part for s in sets for part in ("--set", s)])
    assert done.returncode == 0, done.stderr
    # A feed-forward of width 4096 takes 16 KiB a token, and as much for its output.
    script = here / "little.py"
    script.write_text(LITTLE.format(free=60 * MIB))
    arguments = ["runs/text", "--lengths", "64,4096,256", "--set", "evaluate.batch_tokens=64"]
    arguments += ["--protocol", "nonoverlapping,sliding", "--set", "evaluate.max_tokens=4096"]
    done = zoo_command("evaluate", *arguments, launcher=(script,))
    assert done.returncode == 0, done.stderr
    rows = json.loads((here / "runs/text/evaluation/lengths.json").read_text())
    note = "needs more memory than the 0.1 GiB available here"
    for protocol in ("nonoverlapping", "sliding"):
        # The second protocol comes after the failure of the first, in the same process.
        own = {row["length"]: row for row in rows if row["protocol"] == protocol}
        assert own[4096]["note"] == note
        assert all(own[length]["loss_nats"] > 0 and "note" not in own[length] for length in (64, 256))
    assert note in done.stdout


def test_memory_of_a_gpu_is_that_of_its_device(monkeypatch):
    device, restarted = torch.device("cuda", 1), []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda one: {device: (3 * 2**30, 8 * 2**30)}[one])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda one: {device: 5 * MIB}[one])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", restarted.append)
    assert free_memory(device) == 3 * 2**30
    assert peak_memory_mb(device) == 5
    restart_peak_memory(device)
    assert restarted == [device]


@pytest.mark.launch
def test_the_module_is_there_without_resource():
    """It must import on every system."""
    blocked = "import sys; sys.modules['resource'] = None; import zoo.memory; print(zoo.memory.resource)"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "None", done.stderr
