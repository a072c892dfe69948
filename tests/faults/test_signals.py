"""Ctrl-C and SIGTERM, in one process and in several: saved, reported, and no step lost to it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from killed_runs import (
    ROOT,
    alive_in_group,
    assert_saved,
    endless,
    is_training,
    kill_group,
    saved_step,
    texts,
    wait_for,
)

pytestmark = pytest.mark.slow

TWO = ["trainer.devices=2", "trainer.strategy=ddp"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


@pytest.mark.parametrize("number, to_all", [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_two_processes_save_the_same_step(forks, here, mapping, number, to_all):
    """Whether all of them get the signal or only one that is not the first."""
    pids = forks.start(endless(mapping, here, *TWO), here, here / "log", world_size=2)
    assert wait_for(is_training(here)), texts(here / "log")
    for pid in pids if to_all else pids[1:]:
        os.kill(pid, number)
    assert forks.wait(pids) == [130, 130]
    assert_saved(here, (here / "log.0").read_text())
    assert "interrupted" not in (here / "log.1").read_text()


@pytest.fixture
def launched(here):
    """Start `python ...` with its real launcher, in a process group that ends with the test."""
    groups = []

    def launched(*command):
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK")}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        with (here / "log.0").open("wb") as log:
            process = subprocess.Popen([sys.executable, *map(str, command)], stdout=log,
                                       stderr=subprocess.STDOUT, env=environment,
                                       start_new_session=True)  # fmt: skip
        groups.append(process.pid)
        return process

    yield launched
    for group in groups:
        kill_group(group)


def children(pid):
    """Ids of the processes that a process has started and that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state not in "ZX":
            found.append(int(stat.parent.name))
    return sorted(found)


def have_ended(pids):
    return lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_ctrl_c_of_two_processes(forks, here, mapping):
    (command,) = pids = forks.start(endless(mapping, here, *TWO), here, here / "log")
    assert wait_for(is_training(here), 120), texts(here / "log")
    workers = children(command)
    os.killpg(command, signal.SIGINT)
    assert forks.wait(pids) == [130]
    assert_saved(here, texts(here / "log"))
    assert len(workers) == 2 and wait_for(have_ended(workers))


def test_under_torchrun(launched, here, mapping):
    process = launched(*TORCHRUN, "-m", "zoo", *endless(mapping, here, *TWO))
    assert wait_for(is_training(here), 120), texts(here / "log")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60)
    ours = [line for line in texts(here / "log").splitlines() if line.startswith("interrupted")]
    assert len(ours) == 1 and ours[0].startswith(f"interrupted at step {saved_step(here / 'run')}; saved; ")


def test_the_loss_of_a_process_is_reported(forks, here, mapping):
    arguments = endless(mapping, here, *TWO, "checkpoint.every_n_steps=2")
    (command,) = pids = forks.start(arguments, here, here / "log")
    # The card is written once the run knows that it has saved.
    card = here / "run" / "card.json"
    assert wait_for(lambda: card.exists() and '"steps": 0' not in card.read_text(), 120), texts(here / "log")
    workers = children(command)
    os.kill(workers[1], signal.SIGKILL)
    assert forks.wait(pids) == [1]
    text = texts(here / "log")
    assert "Traceback" not in text and text.count("process 1 was killed by SIGKILL") == 1
    assert "The last checkpoint is of step " in text and "; continue: python -m zoo fit " in text
    assert wait_for(have_ended(workers))


# The process becomes an agent of torchrun, whose worker halts where it opens the data.
AGENT = """
import os, time
from pathlib import Path
import zoo.training.fit as training

def halting(recipe):
    Path("halted").touch()
    time.sleep(600)

if os.fork():
    time.sleep(600)
training.open_data = halting
"""


def test_a_worker_that_still_prepares_ends_with_its_agent(forks, here, mapping):
    (here / "agent.py").write_text(AGENT)
    arguments, worker = endless(mapping, here), {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "1"}
    pids = forks.start(arguments, here, here / "log", patch=here / "agent.py", **worker)
    assert wait_for((here / "halted").exists), texts(here / "log")
    workers = children(pids[0])
    os.kill(pids[0], signal.SIGKILL)
    forks.wait(pids)
    assert len(workers) == 1 and wait_for(lambda: not alive_in_group(pids[0]))


# Before the work of a command


def handles(process, number):
    """Whether a process has a handler of its own for a signal."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number, verb", [(signal.SIGINT, "fit"), (signal.SIGTERM, "evaluate")])
def test_a_command_that_still_imports_ends_in_one_line(launched, here, mapping, number, verb):
    (here / "run").mkdir()
    arguments = endless(mapping, here) if verb == "fit" else ["evaluate", "run"]
    process = launched("-m", "zoo", *arguments)
    # Python itself handles SIGINT; of SIGTERM there is a handler once the command has begun.
    assert wait_for(lambda: handles(process, signal.SIGTERM))
    os.kill(process.pid, number)
    assert process.wait(60) == 130
    assert texts(here / "log") == "interrupted\n"
    assert not [*(here / "run").iterdir()]
