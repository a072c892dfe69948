"""Ctrl-C and SIGTERM, in one process and in several: saved, reported, and no step lost to it."""

import os
import re
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
    last_line,
    saved_step,
    texts,
    wait_for,
)

pytestmark = pytest.mark.slow

TWO = ["trainer.devices=2", "trainer.strategy=ddp"]


@pytest.mark.parametrize(
    "number, where, sets, message",
    [
        (signal.SIGTERM, "data", [], "interrupted before training began; nothing was written"),
        (signal.SIGINT, "data", [], "interrupted before training began; nothing was written"),
        (signal.SIGTERM, "validation", ["trainer.val_check_interval=4"],
         "interrupted at step 4; saved; continue: "),
        (signal.SIGTERM, "evaluation", ["trainer.max_steps=6"],
         "interrupted while it was evaluated; saved; continue: "),
    ],
)  # fmt: skip
def test_outside_of_a_step(forks, here, mapping, number, where, sets, message):
    pids = forks.start(endless(mapping, here, *sets), here, here / "log", halt=(where, 0, 2.0))
    assert wait_for(Path(f"{here / 'log'}.0.halted").exists)
    os.kill(pids[0], number)
    assert forks.wait(pids) == [130]
    text = texts(here / "log")
    assert last_line(text).startswith(message) and "Traceback" not in text
    assert (here / "run").exists() == (where != "data")


@pytest.mark.parametrize("number, to_all", [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_two_processes_save_the_same_step(forks, here, mapping, number, to_all):
    pids = forks.start(endless(mapping, here, *TWO), here, here / "log", world_size=2)
    assert wait_for(is_training(here)), texts(here / "log")
    for pid in pids if to_all else pids[:1]:
        os.kill(pid, number)
    assert forks.wait(pids) == [130, 130]
    assert_saved(here, (here / "log.0").read_text())
    assert "interrupted" not in (here / "log.1").read_text()


def test_a_signal_to_another_than_the_first_process_counts(forks, here, mapping):
    pids = forks.start(endless(mapping, here, *TWO), here, here / "log", world_size=2)
    assert wait_for(is_training(here)), texts(here / "log")
    os.kill(pids[1], signal.SIGTERM)
    assert forks.wait(pids) == [130, 130]
    assert_saved(here, (here / "log.0").read_text())


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_second_signal_ends_it_at_once(forks, here, mapping, world_size):
    sets = [*(TWO if world_size == 2 else []), "checkpoint.every_n_steps=2"]
    pids = forks.start(endless(mapping, here, *sets), here, here / "log", world_size, halt=("step", 5, 5.0))
    assert wait_for(Path(f"{here / 'log'}.{world_size - 1}.halted").exists), texts(here / "log")
    for _ in range(2):
        for pid in reversed(pids):
            os.kill(pid, signal.SIGINT)
        assert wait_for(lambda: "stopping when" in texts(here / "log"))
    assert forks.wait(pids) == [130] * world_size
    text = texts(here / "log")
    assert "Traceback" not in text
    message = r"interrupted at step (\d+); (?:saved|the last checkpoint is of step (\d+)); continue: "
    step, saved = re.match(message, last_line((here / "log.0").read_text())).groups()
    if world_size == 1:
        assert (step, saved) == ("5", "4")
    # Of two, the first hears nothing while it waits for the other's gradients, and may stop in a later step,
    # even between the end of a checkpoint and the note that it is there.
    assert int(saved or step) <= saved_step(here / "run") <= int(step)


@pytest.fixture
def launched(here):
    """Start `python ...` with its real launcher, in a group of its own, and leave nothing of it."""
    groups = []

    def launched(*command):
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK")}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        with (here / "log.0").open("wb") as log:
            process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=subprocess.STDOUT,
                                       env=environment, start_new_session=True)  # fmt: skip
        groups.append(process.pid)
        return process

    yield launched
    for group in groups:
        kill_group(group)


@pytest.mark.parametrize("to_all", [True, False])
def test_under_lightnings_launcher(launched, here, mapping, to_all):
    process = launched("-m", "zoo", *endless(mapping, here, *TWO))
    assert wait_for(is_training(here), 120), texts(here / "log")
    if to_all:
        os.killpg(process.pid, signal.SIGINT)
    else:
        os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 130
    assert_saved(here, texts(here / "log"))
    assert wait_for(lambda: not alive_in_group(process.pid), 15)


def test_under_torchrun(launched, here, mapping):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    process = launched(*launcher, "-m", "zoo", *endless(mapping, here, *TWO))
    assert wait_for(is_training(here), 120), texts(here / "log")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60)
    ours = [line for line in texts(here / "log").splitlines() if line.startswith("interrupted")]
    assert len(ours) == 1 and ours[0].startswith(f"interrupted at step {saved_step(here / 'run')}; saved; ")


@pytest.mark.parametrize("which", ["first", "second"])
def test_one_of_two_processes_is_killed(launched, here, mapping, which):
    process = launched("-m", "zoo", *endless(mapping, here, *TWO, "checkpoint.every_n_steps=2"))
    # The card is written once the run knows that it has saved.
    card = here / "run" / "card.json"
    assert wait_for(lambda: card.exists() and '"steps": 0' not in card.read_text(), 120), texts(here / "log")
    children = [pid for pid in alive_in_group(process.pid) if pid != process.pid]
    os.kill(process.pid if which == "first" else max(children), signal.SIGKILL)
    code = process.wait(30)
    text = texts(here / "log")
    assert "Traceback" not in text
    assert wait_for(lambda: not alive_in_group(process.pid), 15)
    if which == "first":
        assert code == -signal.SIGKILL
        return
    assert code == 1
    assert text.count("was killed by SIGKILL") == 1
    assert last_line(text).startswith(
        "process 1 of this run was killed by SIGKILL; the last checkpoint is of step "
    )
    assert "; continue: python -m zoo fit " in last_line(text)
