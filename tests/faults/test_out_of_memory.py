"""Out of memory: the message has the sizes and the options to lower, and no checkpoint is lost."""

import os
import re
import signal
import sys
from types import SimpleNamespace

import pytest
import torch
from killed_runs import endless, saved_step, texts

from zoo import memory, registry
from zoo.data.max_index import MaxIndex
from zoo.errors import RunError
from zoo.tasks import build_task
from zoo.tasks.task import Task
from zoo.training import memory_guard
from zoo.training.fit import fit
from zoo.training.memory_guard import MemoryGuard

pytestmark = pytest.mark.usefixtures("unmeasured")

MIB = 2**20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux keeps the bound")


@pytest.fixture
def free(monkeypatch):
    """A machine that has so much left."""

    def free(size):
        for module in (memory, memory_guard):
            monkeypatch.setattr(module, "free_memory", lambda device: size)

    return free


def guard_of(recipe, free=None, world_size=1, vocab_size=300):
    """The guard of a run of so many processes on a device that has so much left."""
    guard, strategy = MemoryGuard(recipe), SimpleNamespace(root_device=torch.device("cuda"))
    trainer = SimpleNamespace(world_size=world_size, num_devices=world_size, strategy=strategy)
    guard.setup(trainer, build_task(recipe, vocab_size), "fit")
    guard.free = free
    return guard


def test_sizes_are_those_of_what_a_step_holds(recipe):
    sets = ["data.batch_size=512", "data.sequence_length=64", "trainer.accumulate_grad_batches=2"]
    text = guard_of(recipe("text", *sets, "evaluate.lengths=[16]"), world_size=2, vocab_size=512).describe(
        "here"
    )
    assert text.startswith("out of memory here: a batch is 512 x 64 tokens, 128 x 64 at a time; ")


@pytest.mark.parametrize(
    "encoding, layers",
    [
        ("rope", 0),
        ("[rope, cope]", 3),
        ("{name: interleave, pattern: [cope, rope, none]}", 1),
    ],
)
def test_tables_are_counted_where_a_kernel_writes_them(recipe, encoding, layers):
    """In each layer [batch, heads, length, length]."""
    sets = ["data.sequence_length=256", "data.batch_size=4", "evaluate.lengths=[16]"]
    text = recipe("text", "model.num_layers=3", f"model.encoding={encoding}", *sets)
    (found,) = re.findall(r"encoding's scores (\d+) MiB", guard_of(text).describe("here")) or ["0"]
    assert int(found) == layers * 4 * 4 * 2 * 256 * 256 // MIB
    # A table too large to be kept is not counted.
    text = recipe("text", "model.encoding=cope", "data.sequence_length=8192", "evaluate.lengths=[16]")
    assert "tables" not in guard_of(text).describe("here")


@linux
def test_a_batch_that_cannot_fit_is_reported_in_the_first_step(here, recipe, free):
    """Tables of 128 MiB: no memory that this process has freed before is as large."""
    free(180 * MIB)
    sets = ["data.sequence_length=2048", "data.documents=2000", "evaluate.lengths=[16]"]
    with pytest.raises(RunError) as caught:
        fit(recipe("text", "model.encoding=cope", *sets))
    reported = str(caught.value)
    assert reported.startswith("out of memory in the first step, of 180 MiB that this process may take: ")
    assert "a batch is 4 x 2,048 tokens; the tables of this encoding's scores 128 MiB" in reported
    assert "set trainer.accumulate_grad_batches=2 (the result stays the same)" in reported
    # Of a run that came to nothing nothing stays.
    assert not (here / "runs" / "tiny_text").exists()


@pytest.mark.parametrize(
    "free, sets, accumulate, first",
    [
        (100 * MIB, [], 2, "set trainer.accumulate_grad_batches=2 "),
        (100 * MIB, ["data.batch_size=1"], None, "train with trainer.precision=bf16-mixed"),
        (MIB // 64, [], None, "lower model.d_model or model.num_layers, or share them with "),
    ],
)
def test_the_best_remedy_is_first(recipe, free, sets, accumulate, first):
    guard = guard_of(recipe("text", *sets), free)
    assert guard.accumulate == accumulate and f"What helps most first: {first}" in guard.describe("here")


@linux
def test_a_step_that_outgrows_what_is_free_is_an_error_and_not_a_killed_process(
    here, recipe, free, monkeypatch
):
    """The third step asks for 2 GiB more: no memory that this process has freed before is as large."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    real = Task.training_step

    def greedy(self, batch, index):
        if self.global_step >= 2:
            torch.empty(2048 * MIB, dtype=torch.uint8).fill_(1)
        return real(self, batch, index)

    monkeypatch.setattr(Task, "training_step", greedy)
    free(180 * MIB)
    with pytest.raises(RunError) as caught:
        fit(recipe("text", "checkpoint.every_n_steps=2"))
    reported = str(caught.value)
    assert reported.startswith("out of memory after step 2, of 180 MiB that this process may take")
    assert "The last checkpoint is of step 2; continue: " in reported
    assert reported.endswith("--resume --set trainer.accumulate_grad_batches=2")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    # As it says.
    monkeypatch.setattr(Task, "training_step", real)
    folder = here / "runs" / "tiny_text"
    sets = ["checkpoint.every_n_steps=2", "trainer.accumulate_grad_batches=2"]
    assert fit(recipe("text", *sets), out=folder, resume=True) == folder


def test_a_validation_that_runs_out_of_memory_is_an_error(here, recipe, monkeypatch):
    def greedy(*given):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(registry.tasks.load("max_index"), "validation_step", greedy)
    sets = ["checkpoint.every_n_steps=2", "trainer.val_check_interval=3"]
    with pytest.raises(RunError, match=r"out of memory after step 3.*last checkpoint is of step 2"):
        fit(recipe("max_index", *sets))
    assert (here / "runs" / "tiny" / "checkpoints" / "last.ckpt").is_file()


@linux
def test_a_data_worker_that_dies_is_reported(here, recipe, monkeypatch):
    real = MaxIndex.batch

    def batch(self, indices):
        if torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, indices)

    monkeypatch.setattr(MaxIndex, "batch", batch)
    with pytest.raises(RunError, match=r"a data worker has died .*lower data\.workers"):
        fit(recipe("max_index", "data.workers=1"))


def test_a_mistake_in_a_plugin_keeps_its_traceback_and_has_the_command_that_continues(
    here, recipe, monkeypatch
):
    real = Task.training_step

    def mistaken(self, batch, index):
        if self.global_step == 4:
            raise ZeroDivisionError("of the plugin's own")
        return real(self, batch, index)

    monkeypatch.setattr(Task, "training_step", mistaken)
    with pytest.raises(ZeroDivisionError) as caught:
        fit(recipe())
    (note,) = caught.value.__notes__
    assert re.fullmatch(
        r"This was after step 4\. The last checkpoint is of step 4; continue: .* --resume", note
    )


def test_free_memory_is_read_with_the_model_on_the_gpu(recipe, monkeypatch):
    monkeypatch.setattr(memory_guard, "free_memory", lambda device: {"cuda": 3 * MIB}[device.type])
    guard = guard_of(recipe("text"))
    guard.on_fit_start(
        SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cuda"))), guard.task
    )
    assert "of 3 MiB that this process may take" in guard.describe("here")


# The fifth step of the second process asks for more memory than any machine has.
GREEDY = """
import os
import torch
from zoo.tasks.task import Task

real = Task.training_step

def greedy(self, batch, index):
    if self.global_step == 4 and os.environ["LOCAL_RANK"] == "1":
        torch.empty(2**50)
    return real(self, batch, index)

Task.training_step = greedy
"""


@pytest.mark.slow
def test_both_processes_end_where_one_runs_out(forks, here, mapping):
    (here / "greedy.py").write_text(GREEDY)
    sets = ["checkpoint.every_n_steps=2", "trainer.devices=2", "trainer.strategy=ddp"]
    arguments = endless(mapping, here, *sets)
    codes = forks.wait(forks.start(arguments, here, here / "log", 2, patch=here / "greedy.py"))
    lines = [line for line in texts(here / "log").splitlines() if "memory" in line]
    assert codes[0] == 1 and codes[1] != 0 and len(lines) == 1, texts(here / "log")
    assert re.match(r"process 1: out of memory after step 4, of .*2 x 16 at a time", lines[0])
    assert saved_step(here / "run") == 4
