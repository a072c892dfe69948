"""Processes that are started ahead wait for the variables that `start` gives them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from killed_runs import kill_group

import zoo

pytestmark = pytest.mark.launch

PROGRAM = """
import os, sys, time
from pathlib import Path
from zoo.launch.children import Children, wait_until_started
from zoo.launch.ranks import exit_when_parent_dies

def now(what):
    names = "WORLD_SIZE", "MASTER_PORT", "NODE_RANK"
    text = " ".join([*(os.environ.get(name, "-") for name in names), str(os.getpid())])
    Path(f"{what}-{os.environ.get('LOCAL_RANK', 0)}").write_text(text)

def until(*files):
    while not all(Path(file).exists() for file in files):
        time.sleep(0.02)

exit_when_parent_dies()
first, what = "LOCAL_RANK" not in os.environ, sys.argv[1]
with Children() as children:
    children.start_ahead(3)
    now("ahead")
    wait_until_started()
    if first:
        until("ahead-1", "ahead-2")
        children.start(int(what))
    now("started")
    # It does not leave before the others are done: it would wait for them, but no longer than for 20 s.
    if first:
        until(*(f"started-{rank}" for rank in range(1, int(what))))
"""


@pytest.fixture
def start(tmp_path):
    """Start the program in a group of its own, and leave nothing of it."""
    started = []
    (tmp_path / "program.py").write_text(PROGRAM)
    own = {"PYTHONPATH": str(Path(zoo.__file__).parent.parent)}
    ranks = ("LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "NODE_RANK")
    environment = {name: value for name, value in os.environ.items() if name not in ranks} | own

    def start(what):
        command = [sys.executable, "program.py", str(what)]
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        kill_group(process.pid)
        process.wait()


def words(folder, what):
    return {int(file.name[-1]): file.read_text().split() for file in folder.glob(f"{what}-*")}


def test_processes_that_were_started_ahead_are_those_that_start(start, tmp_path):
    assert start(3).wait(60) == 0
    ahead, started = words(tmp_path, "ahead"), words(tmp_path, "started")
    assert {text[0] for text in ahead.values()} == {"-"} and ahead.keys() == started.keys() == {0, 1, 2}
    assert {tuple(text[:3]) for text in started.values()} == {("3", started[0][1], "0")}
    assert [ahead[rank][3] for rank in range(3)] == [started[rank][3] for rank in range(3)]
