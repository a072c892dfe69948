"""Two processes train the model of one; see tests/faults/test_world_size.py for more of them."""

import pytest
import torch
import yaml
from killed_runs import texts
from run_files import logged, saved, settings

from zoo.errors import InputError
from zoo.reports.fit import fit
from zoo.training.devices import validate_world_size

DDP = ["trainer.devices=2", "trainer.strategy=ddp"]


def losses(folder):
    rows = logged(folder)
    return [(int(r["step"]), float(r["train/loss"] or "nan"), float(r["val/loss"] or "nan")) for r in rows]


def test_parts_of_a_batch_draw_the_positions_of_the_whole(here, recipe):
    sets = ["model.encoding={name: cape, of: rope}", "data.packing=separate"]
    one, two = (
        saved(fit(recipe("text", *sets, f"trainer.accumulate_grad_batches={parts}")))["state_dict"]
        for parts in (1, 2)
    )
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_processes_with_unequal_numbers_of_validation_sequences_lose_none(forks, here, recipe, mapping):
    few = ["data.sequence_length=128", "data.documents=30", "data.batch_size=2", "trainer.max_steps=2"]
    few += ["trainer.limit_val_batches=null", "checkpoint.every_n_steps=1", "evaluate.lengths=[32]"]
    one = fit(recipe("text", *few))  # three sequences
    (here / "text.yaml").write_text(yaml.safe_dump(mapping("text")))
    command = ["fit", "--recipe", "text.yaml", *settings(*few, *DDP)]
    forks.run(command, here, "two", 2)
    assert losses(one.with_name("tiny_text-2"))[-1] == pytest.approx(losses(one)[-1], rel=1e-6, nan_ok=True)
    # One sequence is too few for two processes.
    long = settings("data.sequence_length=256", "data.batch_size=4")
    assert 2 in forks.wait(forks.start([*command, "--out", "none", *long], here, here / "none.log", 2))
    assert "the validation data holds too few sequences (1) for 2 devices" in texts(here / "none.log")
    assert not (here / "none").exists()


@pytest.mark.parametrize("sets", [
    ["trainer.devices='0,1'"], ["trainer.num_nodes=2"], ["trainer.accumulate_grad_batches=2"],
])  # fmt: skip
def test_a_batch_that_they_cannot_share_is_wrong_input(recipe, sets):
    with pytest.raises(InputError, match=r"data\.batch_size: a batch of 3 cannot be divided over 2 "):
        recipe("text", *sets, "data.batch_size=3")
    recipe("text", *sets, "data.batch_size=6")


def test_a_function_starts_no_processes(recipe, launch, here):
    launch({})
    with pytest.raises(InputError, match=r"trainer\.devices: 2, but this command has started 1 "):
        fit(recipe("text", *DDP))


TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
SRUN = {
    "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NAME": "job", "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_NNODES": "1",
}  # fmt: skip


@pytest.fixture
def launch(monkeypatch):
    """Set the variables of a launcher; without any there is none."""
    names = (
        "RANK LOCAL_RANK NODE_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE TORCHELASTIC_RUN_ID SLURM_NTASKS "
        "SLURM_NTASKS_PER_NODE SLURM_JOB_NAME SLURM_STEP_NUM_TASKS SLURM_NNODES SLURM_PROCID"
    )
    for name in names.split():
        monkeypatch.delenv(name, raising=False)

    def launch(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return launch


@pytest.mark.parametrize("variables, right, wrong, message", [
    (TORCHRUN, DDP, [], "trainer.devices: 1, but torchrun has started 2 processes on each machine"),
    ({**TORCHRUN, "LOCAL_WORLD_SIZE": "1"}, ["trainer.num_nodes=2"], [], "torchrun has started 2 machines"),
    # Processes that never come are not waited for.
    ({**TORCHRUN, "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}, [], DDP, "has started 1 processes on each"),
    (SRUN, DDP, [], "trainer.devices: 1, but slurm has started 2 processes"),
    ({**SRUN, "SLURM_NTASKS_PER_NODE": None}, None, DDP, "slurm has started 2 .* --ntasks-per-node=2"),
])  # fmt: skip
def test_other_processes_than_the_recipe_has_are_wrong_input(
    recipe, launch, variables, right, wrong, message
):
    launch({name: value for name, value in variables.items() if value})
    if right is not None:
        validate_world_size(recipe("text", *right))
    with pytest.raises(InputError, match=message):
        validate_world_size(recipe("text", *wrong))


def test_a_batch_that_the_devices_found_cannot_share_is_wrong_input(recipe, launch, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    launch({**TORCHRUN, "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"})
    sets = "trainer.devices=auto", "trainer.accelerator=auto"
    validate_world_size(recipe("text", *sets, "data.batch_size=6"))
    with pytest.raises(InputError, match=r"over 3 .devices 3 x"):
        validate_world_size(recipe("text", *sets, "data.batch_size=4"))
