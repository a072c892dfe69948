"""FSDP: what one process has of the model, and checkpoints that any number of processes continue."""

import shutil

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from zoo.errors import InputError
from zoo.models.shards import gather_full_state, validate_shardable
from zoo.runs.checkpoint_file import read_checkpoint
from zoo.runs.load import load

FSDP = ["trainer.devices=2", "trainer.strategy=fsdp"]
STEPS = [
    "trainer.max_steps=20", "checkpoint.every_n_steps=10", "trainer.log_every_n_steps=1",
    "optimizer.schedule=constant", "model.dropout=0.1", "evaluate.lengths=[16]",
]  # fmt: skip

ROUNDING = 1e-4
"""A tenth of a step at this learning rate: Adam makes whole steps of gradients that are nearly zero."""

# The command line; every process tells what it holds of parameters and moments when training ends.
PROGRAM = """
import sys
from zoo.__main__ import run
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
sys.exit(run())
"""


def settings(*sets):
    return [part for text in sets for part in ("--set", text)]


def content(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


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
def test_one_file_that_any_number_of_processes_continues(zoo_command, here):
    (here / "telling.py").write_text(PROGRAM)
    # Parameters of its own, of odd sizes, that are not in the order of the model in the optimizer; no dropout
    # in what one process and two are to draw alike.
    fit = ["fit", "--recipe", "text.yaml", *settings(*STEPS, "model.encoding=fire", "data.vocab_size=301")]
    plain = settings("model.dropout=0")
    whole = zoo_command(*fit, "--out", "whole", *settings(*FSDP), launcher=("telling.py",))
    assert whole.returncode == 0 and whole.stderr == "", whole.stderr
    shares = [list(map(int, (here / f"held-{rank}").read_text().split())) for rank in (0, 1)]
    total = shares[0][2]
    assert sum(share[0] for share in shares) == total
    assert sum(share[1] for share in shares) == 2 * total
    assert max(share[0] for share in shares) < 0.53 * total
    assert max(share[1] for share in shares) < 0.53 * 2 * total
    assert (here / "whole" / "checkpoints" / "last.ckpt").is_file()
    assert load(here / "whole")(torch.zeros(1, 4, dtype=torch.long)).isfinite().all()

    def run(name, *more):
        done = zoo_command(*fit, "--out", name, *more)
        assert done.returncode == 0, done.stderr
        return content(here / name)

    half = settings("trainer.max_steps=10")
    # The same processes: the same bits, with dropout.
    run("again", *settings(*FSDP), *half)
    assert apart(run("again", *settings(*FSDP), "--resume"), content(here / "whole")) == 0
    # Begun in shards and gone on alone, and the other way round.
    expected = run("alone", *plain)
    run("begun", *settings(*FSDP), *plain, *half)
    shutil.copytree(here / "begun", here / "begun-two")
    assert apart(run("begun", *plain, "--resume"), expected) < ROUNDING
    run("other", *plain, *half)
    assert apart(run("other", *settings(*FSDP), *plain, "--resume"), expected) < ROUNDING
    assert apart(run("begun-two", *settings("trainer.devices=2"), *plain, "--resume"), expected) < ROUNDING


@pytest.mark.slow
def test_a_checkpoint_in_shards_is_that_of_one_file(zoo_command, here):
    sets = [*STEPS, *FSDP, "model.encoding=fire", "data.vocab_size=301"]
    fit = ["fit", "--recipe", "text.yaml", *settings(*sets)]
    shards = settings("checkpoint.sharded=true")

    def run(name, *more):
        done = zoo_command(*fit, "--out", name, *more)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        return read_checkpoint(here / name / "checkpoints" / "last.ckpt")

    expected = run("file")
    assert apart(run("shards", *shards), expected) == 0
    folder = here / "shards" / "checkpoints"
    (last,) = folder.glob("last*.shards")
    assert last.name == "last-20.shards" and len([*last.iterdir()]) == 2
    assert len([*folder.glob("best*.shards")]) == 1
    # The file has everything but the tensors, the shards have these alone.
    held = sum(file.stat().st_size for file in last.iterdir())
    assert (folder / "last.ckpt").stat().st_size < 60_000 < held
    assert (here / "file" / "checkpoints" / "last.ckpt").stat().st_size > held
    # Continued by the same processes the same bits; by one process; and from one file into shards.
    half = settings("trainer.max_steps=10")
    run("half", *shards, *half)
    shutil.copytree(here / "half", here / "half-alone")
    assert apart(run("half", *shards, "--resume"), expected) == 0
    assert not (here / "half" / "checkpoints" / "last-10.shards").exists()
    run("whole", *half)
    assert apart(run("whole", *shards, "--resume"), expected) == 0
    plain = settings("trainer.devices=1", "trainer.strategy=auto", "checkpoint.sharded=auto")
    run("half-alone", *plain, "--resume")
    assert not [*(here / "half-alone" / "checkpoints").glob("last*.shards")]
    # Evaluated, and exported as one file.
    done = zoo_command("evaluate", "shards", "--lengths", "16")
    assert done.returncode == 0, done.stderr
    done = zoo_command("export", "shards", "--format", "safetensors", "--out", "one")
    assert done.returncode == 0, done.stderr
    exported = read_checkpoint(here / "one" / "model.safetensors")["state_dict"]
    assert all(torch.equal(exported[name], value) for name, value in expected["state_dict"].items())


@pytest.mark.slow
def test_a_compiled_model_in_shards_is_the_model(zoo_command, here):
    fit = ["fit", "--recipe", "text.yaml", *settings(*STEPS, *FSDP, "model.encoding=fire")]
    alone = settings("trainer.devices=1", "trainer.strategy=auto")

    def run(name, *more):
        done = zoo_command(*fit, "--out", name, *more)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        return content(here / name)

    plain, compiled = settings("model.dropout=0"), settings("compile=true")
    whole = run("compiled", *plain, *compiled)
    assert apart(whole, run("alone", *plain, *alone)) < ROUNDING
    # Resumed, the same bits; and one process goes on from what two have compiled.
    half = settings("trainer.max_steps=10")
    run("half", *plain, *compiled, *half)
    shutil.copytree(here / "half", here / "half-alone")
    assert apart(run("half", *plain, *compiled, "--resume"), whole) == 0
    assert apart(run("half-alone", *plain, *alone, "--resume"), whole) < ROUNDING
    # In bf16 the order of sums is seen in the third digit, whether they are sums of one process or of two.
    mixed = settings("trainer.precision=bf16-mixed")
    losses = [
        run(name, *plain, *mixed, *more)["callbacks"]["best"]["best_model_score"].item()
        for name, more in (("alone-bf16", alone), ("shards-bf16", []), ("compiled-bf16", compiled))
    ]
    assert losses == pytest.approx([whole["callbacks"]["best"]["best_model_score"].item()] * 3, rel=2e-3)
    assert len(set(losses)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_no_validation_sequence_is_lost_where_processes_have_unequal_numbers(zoo_command, here, strategy):
    # Three sequences: of two processes one has a batch more than the other.
    sets = [
        "data.sequence_length=128", "data.documents=30", "data.batch_size=2", "trainer.max_steps=2",
        "trainer.limit_val_batches=null", "checkpoint.every_n_steps=1", "evaluate.lengths=[32]",
    ]  # fmt: skip
    fit = ["fit", "--recipe", "text.yaml", *settings(*sets)]
    losses = []
    for name, more in ("one", []), ("two", ["trainer.devices=2", f"trainer.strategy={strategy}"]):
        done = zoo_command(*fit, "--out", name, *settings(*more))
        assert done.returncode == 0, done.stderr
        lines = (here / name / "metrics.csv").read_text().splitlines()
        losses.append(float(lines[-1].split(",")[lines[0].split(",").index("val/loss")]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    too_long = settings("data.sequence_length=256", "data.batch_size=4", "trainer.devices=2")
    done = zoo_command(*fit, "--out", "three", *too_long)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "the validation data holds too few sequences (1) for 2 devices" in done.stderr
    assert not (here / "three").exists()


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


@pytest.mark.parametrize(
    "sets, message",
    [
        (["trainer.strategy=fdsp"], "trainer.strategy: .*did you mean 'fsdp'"),
        (["trainer.strategy=deepspeed"], "trainer.strategy: must be 'auto', 'ddp'"),
        (
            ["trainer.devices=2", "checkpoint.sharded=true"],
            "checkpoint.sharded: only trainer.strategy fsdp has a model in shards",
        ),
        (
            ["trainer.strategy=fsdp", "trainer.precision=64"],
            "trainer.precision: 64-true does not go with fsdp",
        ),
    ],
)
def test_what_cannot_be_is_wrong_input(recipe, sets, message):
    with pytest.raises(InputError, match=message):
        recipe("text", *sets)
    assert recipe("text", "trainer.strategy=fsdp", "trainer.precision=32").trainer.strategy == "fsdp"
