"""The rank of a process in its launch."""

import os
import subprocess
import sys

import pytest

from zoo import cli
from zoo.launch.ranks import RANK_VARIABLES, find_launcher, is_first_process

SRUN = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_NNODES": "1", "SLURM_JOB_NAME": "job.sh"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}


@pytest.fixture
def only(monkeypatch):
    """Have these variables of launchers, and no others."""
    for name in list(os.environ):
        if name in RANK_VARIABLES or name.startswith(("SLURM_", "TORCHELASTIC_")) or "WORLD_SIZE" in name:
            monkeypatch.delenv(name)

    def only(environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return only


@pytest.mark.parametrize("environment, first", [
    ({}, True),
    ({"LOCAL_RANK": "1"}, False),
    ({"RANK": "2", "LOCAL_RANK": "0", "GROUP_RANK": "1"}, False),
    ({"SLURM_PROCID": "0", "LOCAL_RANK": "1"}, False),
    ({"NODE_RANK": "1"}, False),
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
    assert find_launcher() == who


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
