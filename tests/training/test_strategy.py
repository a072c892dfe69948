"""FSDP: the part of the model in one process, and checkpoints that any number of processes continues."""

import pytest
import torch
import torch.distributed as dist
import yaml
from killed_runs import texts
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from zoo.errors import InputError
from zoo.runs.checkpoint_file import read_checkpoint
from zoo.runs.load import load
from zoo.training.strategy import gather_full_state, validate_shardable

STEPS = [
    "trainer.max_steps=8", "checkpoint.every_n_steps=4", "trainer.log_every_n_steps=1",
    "optimizer.schedule=constant", "model.dropout=0.1", "evaluate.lengths=[16]",
]  # fmt: skip

ROUNDING = 1e-4
"""A tenth of a step at this learning rate: Adam takes full steps on gradients that are nearly zero."""

# Every process writes the number of its parameters and moments when the training ends.
HELD = """
from zoo.tasks.task import Task

def held(tensors):
    return sum(getattr(one, "to_local", lambda: one)().numel() for one in tensors)

def on_train_end(self):
    weights = list(self.model.parameters())
    states = self.trainer.optimizers[0].state.values()
    moments = [one[key] for one in states for key in ("exp_avg", "exp_avg_sq")]
    with open(f"held-{self.global_rank}", "w") as file:
        print(held(weights), held(moments), sum(one.numel() for one in weights), file=file)

Task.on_train_end = on_train_end
"""


def settings(*sets):
    return [part for text in sets for part in ("--set", text)]


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


UNMEASURED = """
import zoo.training.fit

zoo.training.fit.finish = lambda run, source: ([], [])
"""


@pytest.fixture
def train(forks, here, mapping):
    """Train on text with so many processes; gives the content of the last checkpoint."""
    (here / "text.yaml").write_text(yaml.safe_dump(mapping("text")))

    def train(name, *sets, devices=2, resume=False, patch=""):
        arguments = ["fit", "--recipe", "text.yaml", *settings(*sets, f"trainer.devices={devices}")]
        arguments += ["--out", name, *["--resume"] * resume]
        (here / "patch.py").write_text(patch + UNMEASURED)
        number = len([*here.glob("*.log.0")])
        forks.run(arguments, here, f"{number}", devices, here / "patch.py")
        return read_checkpoint(here / name / "checkpoints" / "last.ckpt")

    return train


FSDP, ALONE = "trainer.strategy=fsdp", "trainer.strategy=auto"
PLAIN, HALF = "model.dropout=0", "trainer.max_steps=4"
# FIRE has parameters of its own, of odd sizes, which the optimizer has in another order than the model.
FIRE = [*STEPS, "model.encoding=fire", "data.vocab_size=301"]


@pytest.mark.slow
def test_one_file_that_any_number_of_processes_continues(train, here):
    whole = train("whole", *FIRE, FSDP, patch=HELD)
    shares = [list(map(int, (here / f"held-{rank}").read_text().split())) for rank in (0, 1)]
    total = shares[0][2]
    assert sum(share[0] for share in shares) == total
    assert sum(share[1] for share in shares) == 2 * total
    assert max(share[0] for share in shares) < 0.53 * total
    assert max(share[1] for share in shares) < 0.53 * 2 * total
    assert load(here / "whole")(torch.zeros(1, 4, dtype=torch.long)).isfinite().all()
    # The same processes: the same bits, with dropout.
    train("again", *FIRE, FSDP, HALF)
    assert apart(train("again", *FIRE, FSDP, resume=True), whole) == 0
    # Begun in shards and continued by one process, and the other way round: without dropout, whose draws
    # depend on the number of processes.
    expected = train("alone", *FIRE, PLAIN, devices=1)
    train("begun", *FIRE, PLAIN, FSDP, HALF)
    assert apart(train("begun", *FIRE, PLAIN, devices=1, resume=True), expected) < ROUNDING
    train("other", *FIRE, PLAIN, HALF, devices=1)
    assert apart(train("other", *FIRE, PLAIN, FSDP, resume=True), expected) < ROUNDING


# Without the C++ compiler, which takes most of a minute.
EAGER = """
import functools
import torch

torch.nn.Module.compile = functools.partialmethod(torch.nn.Module.compile, backend="eager")
"""


@pytest.mark.slow
def test_a_compiled_model_in_shards_is_the_model(train):
    # Without validation, which would be compiled apart.
    sets = [*STEPS, "model.encoding=fire", PLAIN, "trainer.limit_val_batches=0"]
    whole = train("compiled", *sets, FSDP, "compile=true", patch=EAGER)
    assert apart(whole, train("alone", *sets, devices=1)) < ROUNDING
    # Resumed, the same bits.
    train("half", *sets, FSDP, "compile=true", HALF, patch=EAGER)
    assert apart(train("half", *sets, FSDP, "compile=true", resume=True, patch=EAGER), whole) == 0


@pytest.mark.slow
def test_no_validation_sequence_is_lost_where_processes_have_unequal_numbers(train, forks, here):
    # Three sequences: of two processes one has a batch more than the other.
    sets = [
        "data.sequence_length=128", "data.documents=30", "data.batch_size=2", "trainer.max_steps=2",
        "trainer.limit_val_batches=null", "checkpoint.every_n_steps=1", "evaluate.lengths=[32]",
    ]  # fmt: skip
    losses = []
    for name, devices, strategy in ("one", 1, "auto"), ("ddp", 2, "ddp"), ("fsdp", 2, "fsdp"):
        train(name, *sets, f"trainer.strategy={strategy}", devices=devices)
        lines = (here / name / "metrics.csv").read_text().splitlines()
        losses.append(float(lines[-1].split(",")[lines[0].split(",").index("val/loss")]))
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)
    # One sequence is too few for two processes.
    too_long = settings(*sets, "data.sequence_length=256", "data.batch_size=4", "trainer.devices=2")
    arguments = ["fit", "--recipe", "text.yaml", "--out", "none", *too_long]
    assert 2 in forks.wait(forks.start(arguments, here, here / "none.log", 2))
    assert "the validation data holds too few sequences (1) for 2 devices" in texts(here / "none.log")
    assert not (here / "none").exists()


def test_only_the_process_that_writes_copies_a_full_tensor_to_the_cpu(monkeypatch):
    copied, real = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: copied.append(tensor.shape) or real(tensor))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        state = {"weight": distribute_tensor(torch.arange(6.0), init_device_mesh("cpu", (1,)), [Shard(0)])}
        assert gather_full_state(state, keep=False) == {"weight": None} and copied == []
        assert gather_full_state(state)["weight"].tolist() == [0, 1, 2, 3, 4, 5] and copied == [(6,)]
    finally:
        dist.destroy_process_group()


def test_a_parameter_without_a_dimension_is_reported(model_of):
    model = model_of("none")
    validate_shardable(model)
    model.blocks[0].gain = torch.nn.Parameter(torch.tensor(1.0))
    with pytest.raises(InputError, match=r"^blocks\.0\.gain: a parameter without a dimension .* \[1\]"):
        validate_shardable(model)


def test_a_strategy_that_is_misspelt_is_wrong_input(recipe):
    with pytest.raises(InputError, match=r"trainer\.strategy: .*did you mean 'fsdp'"):
        recipe("text", "trainer.strategy=fdsp")
    assert recipe("text", "trainer.strategy=fsdp", "trainer.precision=32").trainer.strategy == "fsdp"
