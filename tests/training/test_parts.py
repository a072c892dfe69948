"""Models in parts (`trainer.strategy: fsdp`) and sequences in parts (`trainer.context_parallel`): the runs of
one process, and its checkpoints."""

import signal

import pytest
import torch
import yaml
from killed_runs import kill_group, texts
from run_files import assert_same, logged, saved, settings

from zoo.errors import InputError

STEPS = [
    "trainer.max_steps=10", "checkpoint.every_n_steps=4", "trainer.log_every_n_steps=1",
    "model.init_std=0.02", "optimizer.schedule=constant", "trainer.limit_val_batches=null",
    "data.batch_size=4",
    # T5 has parameters of its own, which the optimizer has in another order than the model; odd sizes.
    "model.encoding=t5", "data.vocab_size=301",
]  # fmt: skip
FSDP, CONTEXT = "trainer.strategy=fsdp", "trainer.context_parallel=2"
EQUAL = 1e-5
ROUNDING = 1e-4
"""A tenth of a step at this learning rate: Adam takes full steps on gradients that are nearly zero."""

# Every process writes the number of its parameters and moments when the training ends.
HELD = """
from zoo.training.module import TaskModule

def held(tensors):
    return sum(getattr(one, "to_local", lambda: one)().numel() for one in tensors)

def on_train_end(self):
    self.model.reshard()
    weights = list(self.model.parameters())
    states = self.trainer.optimizers[0].state.values()
    moments = [one[key] for one in states for key in ("exp_avg", "exp_avg_sq")]
    with open(f"held-{self.global_rank}", "w") as file:
        print(held(weights), held(moments), sum(one.numel() for one in weights), file=file)

TaskModule.on_train_end = on_train_end
"""
UNMEASURED = """
import zoo.training.fit

zoo.training.fit.finish = lambda run, source: ([], [])
"""


@pytest.fixture
def train(forks, here, mapping):
    """Train on text with so many processes; gives the content of the last checkpoint."""
    (here / "text.yaml").write_text(yaml.safe_dump(mapping("text")))

    def train(name, *sets, devices=2, resume=False, patch="", halt=None):
        arguments = ["fit", "--recipe", "text.yaml", *settings(*STEPS, *sets, f"trainer.devices={devices}")]
        arguments += ["--out", name, *["--resume"] * resume]
        log = here / f"{name}{len([*here.glob('*.log.0')])}.log"
        (here / "patch.py").write_text(patch + UNMEASURED)
        pids = forks.start(arguments, here, log, devices, halt, here / "patch.py")
        if halt:
            forks.wait_for_halt(pids, log)
            kill_group(pids[0])
            assert forks.wait(pids) == [-signal.SIGKILL] * devices
            return None
        assert forks.wait(pids) == [0] * devices, texts(log)
        return saved(here / name)

    return train


def apart(one, two):
    """The largest difference of weights and of the optimizer's moments."""
    assert one["state_dict"].keys() == two["state_dict"].keys()
    pairs = [(one["state_dict"][name], two["state_dict"][name]) for name in one["state_dict"]]
    ours, theirs = (checkpoint["optimizer_states"][0] for checkpoint in (one, two))
    assert ours["param_groups"] == theirs["param_groups"] and ours["state"].keys() == theirs["state"].keys()
    for number, state in ours["state"].items():
        assert state.keys() == theirs["state"][number].keys()
        pairs += [(value, theirs["state"][number][key]) for key, value in state.items()]
    assert all(type(left) is type(right) is torch.Tensor for left, right in pairs)
    return max((left - right).abs().max().item() for left, right in pairs if left.numel())


@pytest.mark.slow
def test_two_processes_with_a_part_each_train_the_model_of_one(train, forks, here):
    # With accumulation, a process validates 14 sequences and the other 13.
    accumulate = "trainer.accumulate_grad_batches=2"
    one, parts = train("one", devices=1), train("parts", FSDP, accumulate, patch=HELD)
    shares = [list(map(int, (here / f"held-{rank}").read_text().split())) for rank in (0, 1)]
    total = shares[0][2]
    for at, expected in enumerate((total, 2 * total)):
        assert sum(share[at] for share in shares) == expected
        assert max(share[at] for share in shares) < 0.53 * expected
    rows = [*zip(logged(here / "one"), logged(here / "parts"), strict=True)]
    assert len(rows) == 10
    for row, its in rows:
        for key in ("train/loss", "val/loss", "train/gradient_norm"):
            assert bool(row[key]) == bool(its[key])
            assert not row[key] or float(its[key]) == pytest.approx(float(row[key]), rel=EQUAL)
    print("weights and moments differ by", apart(one, parts))
    assert apart(one, parts) < EQUAL
    # The last checkpoint of either is continued by the other.
    more = "trainer.max_steps=14"
    one, parts = train("one", FSDP, more, resume=True), train("parts", more, devices=1, resume=True)
    print("after a change of processes they differ by", apart(one, parts))
    assert apart(one, parts) < ROUNDING
    forks.run(["evaluate", "parts", "--lengths", "16"], here, "evaluated")
    forks.run(["export", "one", "--out", "exported"], here, "exported")


@pytest.mark.slow
def test_two_by_two_processes_train_the_model_of_one(train, here):
    """Two halves of the batch, and of each sequence, in float64, where Adam does not magnify rounding."""
    few = ["trainer.max_steps=2", "checkpoint.every_n_steps=1", "trainer.precision=64", "model.encoding=fox"]
    few += ["data.packing=separate"]
    one, parts = train("one", *few, devices=1), train("parts", *few, CONTEXT, devices=4)
    print("weights and moments differ by", apart(one, parts))
    assert apart(one, parts) < 1e-6
    assert logged(here / "parts")[1]["val/loss"] == logged(here / "one")[1]["val/loss"] != ""
    # One process goes on.
    few[0] = "trainer.max_steps=4"
    one, parts = (train(name, *few, devices=1, resume=True) for name in ("one", "parts"))
    assert apart(one, parts) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("way", [FSDP, CONTEXT])
def test_a_killed_training_in_parts_is_continued_with_the_same_bits(train, here, way):
    train("whole", way, "model.dropout=0.1")
    train("killed", way, "model.dropout=0.1", halt=("step", 6))
    train("killed", way, "model.dropout=0.1", resume=True)
    assert_same(saved(here / "whole"), saved(here / "killed"))


@pytest.mark.parametrize("sets, message", [
    (["trainer.devices=1"], "2 devices cannot compute a sequence together: .* devices 1 x num_nodes 1"),
    (["trainer.devices=3"], "2 devices cannot compute a sequence together: .* devices 3 x num_nodes 1"),
    (["trainer.devices=2", FSDP], r"does not go with trainer\.strategy"),
    (["trainer.devices=2", "compile=true"], "does not go with compile"),
    (["trainer.devices=2", "model.gradient_checkpointing=true"], "does not go with model.gradient_check"),
])  # fmt: skip
def test_sequences_that_cannot_be_trained_in_parts_are_wrong_input(recipe, sets, message):
    with pytest.raises(InputError, match=rf"trainer\.context_parallel: {message}"):
        recipe("text", CONTEXT, *sets)


def test_devices_that_compute_a_sequence_read_the_same_part_of_the_batch(recipe):
    sets = CONTEXT, "trainer.devices=4", "trainer.accumulate_grad_batches=2"
    with pytest.raises(InputError, match=r"data\.batch_size: a batch of 6 .* over 4 .* / context"):
        recipe("text", *sets, "data.batch_size=6")
    recipe("text", *sets, "data.batch_size=4")
