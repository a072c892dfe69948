"""`zoo fit --slurm` with stand-ins for `sbatch` and `srun`; a test runs the script of two nodes."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from zoo import cli

NODES = ["--set", "trainer.num_nodes=2"]
SLURM = "--slurm=--partition=gpu --time=1:00:00"


@pytest.fixture
def fit(zoo_command):
    return lambda *options: cli.main(["fit", "max_index.yaml", *options])


def test_a_job_has_a_task_for_each_device(fit, cluster, capsys):
    assert fit(*NODES, "--set", "trainer.devices=2", SLURM) == 0
    assert "job 100 trains max_index; run folder runs/max_index, " in capsys.readouterr().out
    script = cluster()[0][-1]
    head, *options, command = Path(script).read_text().splitlines()
    own = {"--partition=gpu", "--time=1:00:00", "--output=runs/logs/max_index.log"}
    needed = {"--nodes=2", "--ntasks-per-node=2", "--requeue", "--signal=SIGUSR1@180", *own}
    assert head == "#!/bin/sh" and needed <= {line.removeprefix("#SBATCH ") for line in options}
    assert command.startswith("srun --kill-on-bad-exit=1 ") and command.endswith("--resume auto")
    # Each submission is a run of its own, before either has started.
    assert fit(SLURM) == 0
    assert re.search(r"--out (\S+)", Path(cluster()[1][-1]).read_text())[1] == "runs/max_index-2"


@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_a_job_that_cannot_run_is_refused(fit, cluster, resume, capsys):
    open_ended = (*NODES, "--set", "trainer.devices=auto")
    assert fit(*(resume or open_ended), SLURM) == 2
    assert ("nothing to resume" if resume else "give the devices of one node") in capsys.readouterr().err
    assert not Path("calls").exists()


def test_a_missing_sbatch_leaves_the_script(fit, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert fit(SLURM) == 1
    assert "sbatch cannot be run" in capsys.readouterr().err
    assert Path("runs/logs/max_index.sh").is_file() and not Path("runs/max_index").exists()


@pytest.mark.slow
def test_the_job_of_two_nodes_trains_and_resumes(fit, cluster):
    assert fit(*NODES, SLURM) == 0
    job = {
        "SLURM_JOB_ID": "100", "SLURM_JOB_NAME": "job", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_STEP_NUM_TASKS": "2", "SLURM_NNODES": "2", "SLURM_NODELIST": "localhost", "SLURM_LOCALID": "0",
        "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    for verb in ("training", "continuing"):  # a job that is requeued
        done = subprocess.run(
            ["sh", cluster()[0][-1]], env={**os.environ, **job}, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0 and done.stdout.count(f"{verb} max_index") == 1, done.stderr
    assert json.loads(Path("runs/max_index/card.json").read_text())["finished"] is True
