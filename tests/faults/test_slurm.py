"""SLURM's warning saves and requeues: with its variables, and an `scontrol` that records its arguments."""

import os
import signal

import pytest
from killed_runs import assert_saved, endless, is_training, saved_step, texts, wait_for

pytestmark = pytest.mark.slow

TWO = ["trainer.devices=2", "trainer.strategy=ddp"]


@pytest.fixture
def cluster(here):
    """The variables of a job, with an `scontrol` on the path that notes its arguments."""

    def cluster(code=0):
        tools = here / "tools"
        tools.mkdir(exist_ok=True)
        noted = f'echo "$@" >> {here}/noted\n[ {code} = 0 ] || {{ echo "Access denied" >&2; exit {code}; }}\n'
        (tools / "scontrol").write_text(f"#!/bin/sh\n{noted}")
        (tools / "scontrol").chmod(0o755)
        return {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "PATH": f"{tools}:{os.environ['PATH']}"}

    return cluster


def test_the_warning_saves_requeues_and_the_job_goes_on(forks, here, mapping, cluster):
    """Two processes."""
    job = [*endless(mapping, here, *TWO), "--resume", "auto"]
    steps = []
    for start in range(2):
        log = here / f"log{start}"
        before = (here / "run" / "metrics.csv").stat().st_size if start else 0
        pids = forks.start(job, here, log, 2, **cluster())
        assert wait_for(is_training(here, before)), texts(log)
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
        assert forks.wait(pids) == [130] * 2
        text = (here / f"log{start}.0").read_text()
        assert text.strip().endswith("\njob 4711 is requeued")
        assert_saved(here, text.strip().removesuffix("job 4711 is requeued"))
        assert ("continuing" in text) == bool(start)
        steps.append(saved_step(here / "run"))
    assert steps[0] < steps[1]
    assert (here / "noted").read_text() == "requeue 4711\n" * 2  # once a start, however many processes
    assert not [*here.rglob("hpc_ckpt*")]


def test_a_failing_scontrol_is_reported(forks, here, mapping, cluster):
    pids = forks.start(endless(mapping, here), here, here / "log", **cluster(code=1))
    assert wait_for(is_training(here)), texts(here / "log")
    os.kill(pids[0], signal.SIGUSR1)
    assert forks.wait(pids) == [130]
    saved, message = texts(here / "log").strip().splitlines()[-2:]
    assert saved.startswith("interrupted at step ") and "; saved; continue: python -m zoo fit " in saved
    assert (
        message == "job 4711 could not be requeued (Access denied); continue by hand, with the command above"
    )


def test_sigterm_saves_and_requeues_nothing(forks, here, mapping, cluster):
    pids = forks.start(endless(mapping, here), here, here / "log", **cluster())
    assert wait_for(is_training(here)), texts(here / "log")
    os.kill(pids[0], signal.SIGTERM)
    assert forks.wait(pids) == [130]
    assert_saved(here, texts(here / "log"))
    assert not (here / "noted").exists()
