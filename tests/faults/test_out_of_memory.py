"""Memory that does not suffice is told with its sizes and with what to lower, and costs no checkpoint."""

import mmap
import os
import re
import signal
import sys
from types import SimpleNamespace

import pytest
import torch

from zoo import memory, registry
from zoo.data.max_index import MaxIndex
from zoo.errors import RunError
from zoo.tasks import build_task
from zoo.tasks.task import Task
from zoo.training import memory_guard
from zoo.training.fit import fit
from zoo.training.memory_guard import MemoryGuard, memory_need

MIB = 2**20
# Logits of 8 x 256 tokens over 1,500 or so: 12 MiB, and as much again for each of what is made of them.
LARGE = [
    "data.vocab_size=1500", "data.documents=200", "data.sequence_length=256", "data.batch_size=8",
    "evaluate.max_tokens=512", "evaluate.lengths=[256]", "trainer.limit_val_batches=0",
    "checkpoint.every_n_steps=2",
]  # fmt: skip

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux keeps the bound")


@pytest.fixture
def free(monkeypatch):
    """A machine that has so much left."""

    def free(size):
        for module in (memory, memory_guard):
            monkeypatch.setattr(module, "free_memory", lambda device: size)

    return free


def need(recipe, world_size=1, vocab_size=300):
    return memory_need(recipe, build_task(recipe, vocab_size), world_size)


def test_sizes_are_those_of_what_a_step_holds(recipe):
    one = recipe("text", "data.batch_size=8", "trainer.accumulate_grad_batches=2")
    shared = need(one, world_size=2)
    assert (shared.rows, shared.length, shared.parts) == (2, 16, 4)
    assert shared.logits == 2 * 16 * 300 * 4
    weights = sum(p.numel() for p in build_task(one, 300).parameters())
    assert (shared.weights, shared.moments) == (4 * weights, 8 * weights)
    assert shared.least == shared.moments + max(shared.weights, 2 * shared.logits)
    # A pointer has one logit for each position.
    assert need(recipe("max_index")).logits == 0


@pytest.mark.parametrize(
    "encoding, tables",
    [
        ("none", 0),
        ("rope", 0),
        ("alibi", 1),
        ("t5", 4 * 3),
        ("shaw", 4 * 3),
        ("cope", 4 * 3),
        ("[rope, cope]", 4 * 3),
        ("{name: interleave, pattern: [cope, rope, none]}", 4),
    ],
)
def test_tables_are_counted_where_a_kernel_writes_them(recipe, encoding, tables):
    """In units of [heads, length, length]: one of a fixed bias, batch x layers of what each pair has anew."""
    sets = ["model.num_layers=3", f"model.encoding={encoding}", "data.batch_size=4"]
    assert need(recipe("text", *sets)).tables == tables * 4 * 2 * 16 * 16


def test_what_cannot_fit_is_reported_before_the_first_step(here, recipe, free):
    free(20 * MIB)
    with pytest.raises(RunError) as caught:
        fit(recipe("text", *LARGE))
    reported = str(caught.value)
    assert reported.startswith("out of memory before the first step, of 20 MiB that this process may take: ")
    assert "a batch is 8 x 256 tokens; the logits over" in reported
    assert "set trainer.accumulate_grad_batches=2 (the result stays the same)" in reported
    # Of a run that came to nothing nothing stays.
    assert not (here / "runs" / "tiny_text").exists()
    # What it asks for helps.
    fit(recipe("text", *LARGE, "trainer.accumulate_grad_batches=8", "trainer.max_steps=1", "name=small"))


@linux
def test_what_is_reported_to_be_there_is_what_is_allowed(recipe, monkeypatch):
    """While others take and give back memory no two measurements are alike."""
    left = iter(range(400 * MIB, 0, -100 * MIB))
    for module in (memory, memory_guard):
        monkeypatch.setattr(module, "free_memory", lambda device: next(left))
    text = recipe("text")
    task = build_task(text, 300)
    strategy = SimpleNamespace(root_device=torch.device("cpu"), barrier=lambda: None)
    own = MemoryGuard(text)
    with own.bound:
        own.setup(SimpleNamespace(world_size=2, num_devices=2, strategy=strategy), task, "fit")
        # Mapped, and not from what this process may hold of memory that it has freed before.
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
        mmap.mmap(-1, own.free - 20 * MIB, **private).close()
        with pytest.raises(OSError, match="Cannot allocate memory"):
            mmap.mmap(-1, own.free + 20 * MIB, **private)


def test_weights_that_cannot_fit_are_not_helped_by_smaller_parts(here, recipe, free):
    free(MIB // 64)
    with pytest.raises(RunError, match=r"lower model\.d_model.*fsdp") as caught:
        fit(recipe("text"))
    assert "accumulate_grad_batches" not in str(caught.value)


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


def test_so_is_a_validation(here, recipe, monkeypatch):
    def greedy(*given):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(registry.tasks.load("max_index"), "validation_step", greedy)
    sets = ["checkpoint.every_n_steps=2", "trainer.val_check_interval=3"]
    with pytest.raises(RunError, match=r"out of memory after step 3.*last checkpoint is of step 2"):
        fit(recipe("max_index", *sets))
    assert (here / "runs" / "tiny" / "checkpoints" / "last.ckpt").is_file()


@linux
@pytest.mark.parametrize("how, message", [("killed", "a data worker has died .*lower data.workers"),
                                       ("short", "^out of memory in the first step")])  # fmt: skip
def test_a_data_worker_that_dies_is_reported(here, recipe, monkeypatch, how, message):
    real = MaxIndex.batch

    def batch(self, indices):
        if torch.utils.data.get_worker_info() is not None:
            if how == "short":
                raise MemoryError
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, indices)

    monkeypatch.setattr(MaxIndex, "batch", batch)
    with pytest.raises(RunError, match=message):
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


def test_what_a_gpu_has_left_is_asked_when_the_model_is_on_it(recipe, monkeypatch):
    """Of its error only the class is known here."""
    free = {torch.device("cuda", 0): 3 * MIB}
    monkeypatch.setattr(memory_guard, "free_memory", lambda device: free[device])
    text = recipe("text", *LARGE)
    task = build_task(text, 1500)

    class Strategy:
        root_device = torch.device("cuda", 0)

        def reduce_boolean_decision(self, decision, all):
            return decision

    class Trainer:
        world_size, num_devices, strategy = 1, 1, Strategy()

    own = MemoryGuard(text)
    own.setup(Trainer(), task, "fit")
    with pytest.raises(RunError, match="of 3 MiB"):
        own.on_fit_start(Trainer(), task)
    free[torch.device("cuda", 0)] = 100 * MIB
    own.on_fit_start(Trainer(), task)


@pytest.mark.parametrize(
    "encoding", ["none", "rope", "alibi", "t5", "shaw", "cope", "[rope, cope]", "transformer_xl"]
)
@pytest.mark.parametrize("sets", [[], ["model.kernel=reference"], ["trainer.precision=bf16-mixed"]])
def test_tables_that_are_called_certain_are_held(recipe, encoding, sets):
    """Between the forward and the backward pass, in bytes of what has a number for each pair."""
    text = recipe("text", f"model.encoding={encoding}", "model.num_layers=3", *sets)
    task = build_task(text, 300)
    held = {}

    def keep(saved):
        if saved.ndim == 4 and saved.shape[0] == 4 and saved.shape[-2:] == (16, 16):
            held[saved.untyped_storage().data_ptr()] = saved
        return saved

    mixed = torch.autocast("cpu", torch.bfloat16, enabled="bf16-mixed" in "".join(sets))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved), mixed:
        task.model(torch.randint(300, (4, 16)))
    certain = need(text).kept_tables
    assert certain <= sum(one.numel() * one.element_size() for one in held.values())
    written = encoding in ("shaw", "cope", "[rope, cope]", "transformer_xl")
    assert bool(certain) == (written or "model.kernel=reference" in sets)


def test_what_not_even_one_sequence_fits_into_is_helped_by_a_shorter_one(recipe, free):
    def advice(size, *sets):
        text = recipe(
            "text", "data.batch_size=64", "data.sequence_length=4096", "evaluate.lengths=[16]", *sets
        )
        own = MemoryGuard(text)
        own.need, own.free = memory_need(text, build_task(text, 300)), size
        return own.accumulate, own.describe("here")

    # A sequence has logits of 5 MiB, and their gradient as much; in the tables of CoPE 128 MiB.
    accumulate, reported = advice(100 * MIB)
    assert accumulate == 8 and "first: set trainer.accumulate_grad_batches=8 " in reported
    accumulate, reported = advice(100 * MIB, "model.encoding=cope")
    assert accumulate is None and "accumulate" not in reported
    assert "What helps most first: lower data.sequence_length: not even one sequence of it fits" in reported
    accumulate, reported = advice(5 * MIB)
    assert accumulate is None and "data.batch_size" not in reported
    assert "first: lower data.sequence_length" in reported
    # Where nobody knows what is free, smaller parts may help.
    assert advice(None)[0] == 2


def test_tables_that_cannot_fit_are_reported_before_the_first_step(here, recipe, free):
    free(200 * MIB)
    sets = [
        "data.sequence_length=4096",
        "model.encoding=cope",
        "data.documents=2000",
        "evaluate.lengths=[16]",
    ]
    with pytest.raises(
        RunError, match=r"before the first step.* the tables of this encoding's scores 512 MiB"
    ):
        fit(recipe("text", *sets))


# A command as a user gives it, where the fifth step of one process asks for more than any machine has.
GREEDY = """
import mmap
import os
import sys
import torch
from zoo.tasks.task import Task
real = Task.training_step
def greedy(self, batch, index):
    if self.global_step == 4 and os.environ.get("LOCAL_RANK", "0") in {ranks!r}:
        torch.empty(2**50)
    return real(self, batch, index)
Task.training_step = greedy
from zoo.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["0", "1", "01"])
def test_both_processes_end_where_one_runs_out(zoo_command, here, ranks):
    script = here / "greedy.py"
    script.write_text(GREEDY.format(ranks=ranks))
    sets = ["checkpoint.every_n_steps=2", "trainer.devices=2", "trainer.strategy=ddp"]
    arguments = ["fit", "--recipe", "text.yaml", *[part for text in sets for part in ("--set", text)]]
    done = zoo_command(*arguments, launcher=(script,))
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1, done.stderr
    assert re.match(r"(process 1: )?out of memory after step 4, of .*2 x 16 at a time", lines[0])
    assert lines[0].startswith("process 1: ") or ranks != "1"
    saved = torch.load(here / "runs" / "text" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 4
