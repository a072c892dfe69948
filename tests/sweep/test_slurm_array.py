"""`zoo sweep --slurm` with stand-ins for `sbatch` and `srun`; the test runs the scripts."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zoo import cli

ROOT = Path(__file__).parents[2]

SBATCH = """\
#!{python}
import sys
from pathlib import Path

calls = Path({calls!r})
job = 100 + (calls.read_text().count("\\n") if calls.exists() else 0)
with calls.open("a") as file:
    print(*sys.argv[1:], file=file)
print(job)
"""
SRUN = '#!/bin/sh\n[ "$1" = --kill-on-bad-exit=1 ] && shift\nexec "$@"\n'


@pytest.fixture
def cluster(here, monkeypatch):
    """Stand-ins for SLURM's commands on the path; gives the calls of `sbatch`."""
    tools = here / "tools"
    tools.mkdir()
    calls = here / "calls"
    for name, content in {
        "sbatch": SBATCH.format(python=sys.executable, calls=str(calls)),
        "srun": SRUN,
    }.items():
        (tools / name).write_text(content)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return lambda: calls.read_text().splitlines() if calls.exists() else []


OPTIONS = "--slurm=--partition=gpu --time=1:00:00"


def test_an_array_of_runs_and_a_comparison_after_it(stub, tiny, cluster, capsys, monkeypatch):
    monkeypatch.setattr("zoo.sweep.sweep._sbatch", lambda script, *more: f"{script.stem}{''.join(more)}")
    arguments = ["sweep", "tiny.yaml", "--encodings", "alibi,rope", "--seeds", "0,1", "--jobs", "2", OPTIONS]
    assert cli.main(arguments) == 0
    message = capsys.readouterr().out
    assert "job runs " in message and "job comparison--dependency=afterany:runs " in message
    folder = Path("runs/tiny_sweep")
    script = (folder / "runs.sh").read_text()
    for line in ("--array=1-4%2", "--ntasks-per-node=1", "--partition=gpu", "--time=1:00:00", "--requeue"):
        assert re.search(rf"^#SBATCH .*{line}", script, flags=re.MULTILINE), line
    commands = (folder / "commands.txt").read_text().splitlines()
    assert [re.search(r"--out (\S+)", line)[1] for line in commands] == [
        f"runs/{name}_tiny_s{seed}" for seed in (0, 1) for name in ("alibi", "rope")
    ]
    assert all("--resume auto >>runs/logs/" in line for line in commands)
    assert "--compare-only" in (folder / "comparison.sh").read_text()
    assert stub() == []  # nothing ran here


def test_a_missing_sbatch_is_reported_with_the_script(tiny, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert cli.main(["sweep", "tiny.yaml", "--encodings", "alibi", "--slurm"]) == 1
    assert "sbatch" in (message := capsys.readouterr().err) and "runs/tiny_sweep/runs.sh" in message


@pytest.mark.slow
def test_the_scripts_train_and_compare(tiny, zoo_command, cluster):
    done = zoo_command("sweep", "tiny.yaml", "--encodings", "alibi", OPTIONS)
    assert done.returncode == 0, done.stderr
    first, second = cluster()
    assert first.endswith("tiny_sweep/runs.sh") and "--dependency=afterany:100" in second.split()
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SLURM_JOB_ID": "100",
        "SLURM_JOB_NAME": "sweep", "SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "1", "SLURM_NNODES": "1",
        "SLURM_NODELIST": "localhost", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
        "SLURM_ARRAY_TASK_ID": "1",
    }  # fmt: skip
    for call in (first, second):
        script = call.split()[-1]
        subprocess.run(["sh", script], env=environment, check=True, capture_output=True)
    (log,) = Path("runs/logs").iterdir()
    assert "done: " in log.read_text()
    assert json.loads(Path("runs/alibi_tiny_s0/card.json").read_text())["finished"] is True
    assert Path("runs/tiny_comparison/index.html").is_file()
