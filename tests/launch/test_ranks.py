"""The rank of a process in its launch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from zoo import cli
from zoo.launch.ranks import LAUNCH_VARIABLES, find_launcher, is_first_process
from zoo.reports.fit import fit
from zoo.runs.card import read_card
from zoo.runs.folder import RESULTS, write_recipe

ROOT = Path(__file__).parents[2]

SRUN = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_NNODES": "1", "SLURM_JOB_NAME": "job.sh"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}


@pytest.fixture
def only(monkeypatch):
    """Have these variables of launchers, and no others."""
    for name in list(os.environ):
        if name in LAUNCH_VARIABLES or name.startswith(("SLURM_", "TORCHELASTIC_")) or "WORLD_SIZE" in name:
            monkeypatch.delenv(name)

    def only(environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return only


@pytest.mark.parametrize("environment, first", [
    ({}, True),
    (TORCHRUN | {"RANK": "1", "LOCAL_RANK": "1"}, False),
    (TORCHRUN | {"RANK": "2", "LOCAL_RANK": "0", "GROUP_RANK": "1"}, False),
    (TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"}, True),
    (SRUN | {"SLURM_PROCID": "1"}, False),
    (SRUN | {"SLURM_PROCID": "0", "LOCAL_RANK": "1"}, True),
    # Left over in the environment of a process without a launcher.
    ({"RANK": "1"}, True),
    ({"RANK": "abc", "LOCAL_RANK": "1", "NODE_RANK": "1", "SLURM_PROCID": "3"}, True),
])  # fmt: skip
def test_the_first_process_of_a_launch(only, environment, first):
    only(environment)
    assert is_first_process() is first


@pytest.mark.parametrize("environment, who", [
    ({}, None),
    (TORCHRUN, ("torchrun", 2, 2)),
    (TORCHRUN | {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}, ("torchrun", 1, 1)),
    (SRUN, ("slurm", 2, 1)),
    ({"SLURM_NTASKS": "4"}, None),
])  # fmt: skip
def test_the_launcher_is_found(only, environment, who):
    only(environment)
    assert find_launcher() == (who and (*who, 0))


@pytest.mark.parametrize("environment, reported", [
    (TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0"}, "interrupted\n"),
    # The first of the second machine.
    (TORCHRUN | {"RANK": "2", "LOCAL_RANK": "0", "GROUP_RANK": "1"}, ""),
])  # fmt: skip
def test_one_process_of_a_launch_reports_ctrl_c(only, capsys, environment, reported):
    only(environment)
    assert cli._interrupted(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == reported


@pytest.mark.launch
def test_the_ranks_are_read_without_torch():
    asked = "import sys, zoo.launch.ranks; assert not {'torch', 'lightning'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", asked], check=True)


@pytest.mark.launch
def test_a_rank_without_a_launcher_changes_nothing(here, recipe, only):
    """Lightning reads them when it is imported, so the command needs a process of its own."""
    only(
        {"RANK": "1", "LOCAL_RANK": "abc", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "PYTHONPATH": str(ROOT)}
    )
    write_recipe(here, recipe())
    for arguments in (["fit", "recipe.yaml", "--out", "run"], ["evaluate", "run", "--lengths", "12"]):
        done = subprocess.run([sys.executable, "-m", "zoo", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert {8, 12} <= {row["length"] for row in json.loads((here / "run" / RESULTS).read_text())}


def test_training_from_python_ignores_a_rank_without_a_launcher(here, recipe, only, monkeypatch, unmeasured):
    only({"RANK": "1", "LOCAL_RANK": "1"})
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    assert read_card(fit(recipe()))["finished"]
