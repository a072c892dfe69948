"""`zoo sweep --slurm` with stand-ins for `sbatch` and `srun`; the test runs the jobs."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from zoo import cli

OPTIONS = "--slurm=--partition=gpu --time=1:00:00"


def test_an_array_of_runs_and_a_comparison_after_it(tiny, cluster, capsys):
    arguments = ["sweep", "tiny.yaml", "--encodings", "alibi,rope", "--seeds", "0,1", "--jobs", "2", OPTIONS]
    assert cli.main(arguments) == 0
    message = capsys.readouterr().out
    assert "job 100 has the runs, job 101 the comparison" in message
    runs, comparison = cluster()
    own = {"--partition=gpu", "--time=1:00:00"}
    assert {"--array=1-4%2", "--ntasks-per-node=1", "--requeue", "--signal=SIGUSR1@180", *own} <= {*runs}
    assert {"--dependency=afterany:100", *own} <= {*comparison}
    assert comparison[-1].startswith("--wrap=") and comparison[-1].endswith("--compare-only")
    commands = Path("runs/tiny_sweep/commands.txt").read_text().splitlines()
    assert [re.search(r"--out (\S+)", line)[1] for line in commands] == [
        f"runs/{name}_tiny_s{seed}" for seed in (0, 1) for name in ("alibi", "rope")
    ]
    assert all("--resume auto >>runs/logs/" in line for line in commands)
    assert not [*Path("runs").glob("*_s[0-9]")]  # nothing ran here


def test_a_missing_sbatch_is_reported(tiny, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert cli.main(["sweep", "tiny.yaml", "--encodings", "alibi", "--slurm"]) == 1
    assert "sbatch cannot be run" in capsys.readouterr().err


@pytest.mark.slow
def test_the_jobs_train_and_compare(tiny, environment, cluster):
    assert cli.main(["sweep", "tiny.yaml", "--encodings", "alibi", OPTIONS]) == 0
    job = {
        "SLURM_JOB_ID": "100", "SLURM_JOB_NAME": "sweep", "SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_NNODES": "1", "SLURM_NODELIST": "localhost", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0", "SLURM_ARRAY_TASK_ID": "1",
    }  # fmt: skip
    training, comparison = (options[-1].removeprefix("--wrap=") for options in cluster())
    subprocess.run(["sh", "-c", training], env={**os.environ, **job}, check=True, capture_output=True)
    (log,) = Path("runs/logs").iterdir()
    assert "done: " in log.read_text()
    assert json.loads(Path("runs/alibi_tiny_s0/card.json").read_text())["finished"] is True
    # In this process, which has imported all.
    assert shlex.split(comparison)[:3] == [sys.executable, "-m", "zoo"]
    assert cli.main(shlex.split(comparison)[3:]) == 0
    assert Path("runs/tiny_comparison/index.html").is_file()
