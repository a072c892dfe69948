"""Sweeps over a tiny recipe, with a stand-in for `fit` where the training itself does not matter."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zoo.sweep.plan import Run

STUB = Path(__file__).parent / "fit_stub.py"
ROOT = Path(__file__).parents[2]


def _stubbed(command):
    return command if command[0] == "python" else [sys.executable, str(STUB), *command[3:]]


@pytest.fixture
def tiny(here, mapping):
    """A recipe file without an encoding, in the working directory."""
    made = {key: value for key, value in mapping("max_index").items() if key != "name"}
    made["model"] = {key: value for key, value in made["model"].items() if key != "encoding"}
    (here / "tiny.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    return Path("tiny.yaml")


@pytest.fixture
def compared(monkeypatch):
    """What the comparison was asked for, call by call, instead of the comparison."""
    calls = []
    monkeypatch.setattr(
        "zoo.reports.compare.compare",
        lambda paths, out: calls.append(([path.name for path in paths], str(out))),
    )
    return calls


@pytest.fixture
def stub(tiny, compared, monkeypatch):
    """`fit` is the stand-in; gives the lines of its beginnings and ends."""
    command = Run.command
    monkeypatch.setattr(Run, "command", lambda run, *python: _stubbed(command(run, *python)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def times():
        file = Path("times")
        return [line.split() for line in file.read_text().splitlines()] if file.is_file() else []

    return times


@pytest.fixture
def steps_of():
    """The optimizer steps in a run folder's last checkpoint, made by the stand-in."""
    return lambda folder: int(Path(folder, "checkpoints", "last.ckpt").read_text())


@pytest.fixture
def started(here):
    """Start a Python command in a group of its own, whose processes can be signalled as a terminal does."""
    processes = []

    def start(*arguments, **environment):
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={
                **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                **environment,
            },
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


@pytest.fixture
def rows_of():
    """The stored results of a run, without what time and memory they took."""

    def rows_of(folder):
        rows = json.loads(Path(folder, "evaluation", "lengths.json").read_text())
        return [
            {k: v for k, v in row.items() if k not in ("tokens_per_second", "peak_memory_mb")} for row in rows
        ]

    return rows_of
