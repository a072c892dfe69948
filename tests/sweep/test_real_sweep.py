"""The whole of it with real runs."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

PLUGIN = """\
import zoo
from zoo import registry


@zoo.register("brittle")
class Brittle(registry.encodings.load("alibi")):
    def bias(self, head, q, k):
        raise ArithmeticError("not today")
"""
ROOT = Path(__file__).parents[2]
SWEEP = ("sweep", "tiny.yaml", "--set", "plugins=[brittle.py]", "--encodings")


@pytest.fixture
def brittle(tiny):
    """A plugin whose models cannot be trained."""
    Path("brittle.py").write_text(PLUGIN)


def weights(folder):
    content = torch.load(Path(folder, "checkpoints", "last.ckpt"), weights_only=True)
    return content["global_step"], content["state_dict"]


def assert_same_run(one, two):
    (steps, left), (also, right) = weights(one), weights(two)
    assert steps == also and left.keys() == right.keys()
    for key in left:
        assert torch.equal(left[key], right[key]), key


@pytest.mark.launch
def test_one_fails_and_the_rest_is_compared(zoo_command, brittle):
    done = zoo_command(*SWEEP, "brittle,alibi")
    assert done.returncode == 1, done.stderr
    assert "1 of 2 runs failed" in done.stderr and "ArithmeticError: not today" in done.stderr
    assert "alibi" in done.stdout and Path("runs/tiny_comparison/index.html").is_file()
    assert json.loads(Path("runs/alibi_tiny_s0/card.json").read_text())["finished"] is True


@pytest.mark.launch
def test_nothing_heavy_is_imported(tiny):
    code = (
        "import sys; from zoo import cli; cli.main(sys.argv[1:]); "
        "assert not {'lightning', 'matplotlib'} & set(sys.modules)"
    )
    arguments = ["sweep", "tiny.yaml", "--encodings", "alibi,{name: rope, partial: 0.5}", "--print-commands"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2, done.stderr


@pytest.mark.launch
def test_wrong_input_starts_nothing(zoo_command, tiny):
    done = zoo_command("sweep", "tiny.yaml", "--encodings", "alibi,ropee")
    assert done.returncode == 2 and done.stdout == "" and not Path("runs").exists()
    assert "--encodings ropee: model.encoding: no encoding 'ropee'; did you mean 'rope'?" in done.stderr


@pytest.mark.slow
def test_printed_commands_give_the_runs_of_the_sweep(zoo_command, tiny, rows_of):
    encodings = "alibi,{name: rope, partial: 0.5}"
    printed = zoo_command("sweep", tiny, "--encodings", encodings, "--print-commands", "--out", "printed")
    for line in printed.stdout.splitlines():
        command = line.replace("python", shlex.quote(sys.executable), 1)
        # The number of threads is part of what makes two runs equal to the last bit: that of `zoo_command`.
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        assert subprocess.run(["sh", "-c", command], env=environment, capture_output=True).returncode == 0
    done = zoo_command("sweep", tiny, "--encodings", encodings)
    assert done.returncode == 0, done.stderr
    names = ["alibi_tiny_s0", "rope-partial-0.5_tiny_s0"]
    for name in names:
        assert_same_run(f"printed/{name}", f"runs/{name}")
        assert rows_of(f"printed/{name}") == rows_of(f"runs/{name}")
    again = zoo_command("sweep", tiny, "--encodings", encodings, "--print-commands", "--out", "printed")
    assert again.returncode == 0 and again.stdout == ""


@pytest.mark.slow
def test_a_sweep_that_was_stopped_gives_the_runs_of_one_that_was_not(zoo_command, tiny, started, rows_of):
    sweep = ["sweep", tiny, "--encodings", "alibi,rope", "--set", "trainer.max_steps=400", "--jobs", "2"]
    process = started("-m", "zoo", *sweep)
    logs = [Path(f"runs/{name}_tiny_s0/card.json") for name in ("alibi", "rope")]
    limit = time.monotonic() + 120
    while not all(file.is_file() and json.loads(file.read_text())["steps"] for file in logs):
        assert time.monotonic() < limit
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "Traceback" not in err
    assert [weights(f"runs/{name}_tiny_s0")[0] < 400 for name in ("alibi", "rope")] == [True, True]
    assert zoo_command(*sweep).returncode == 0
    assert zoo_command(*sweep, "--out", "whole").returncode == 0
    for name in ("alibi_tiny_s0", "rope_tiny_s0"):
        assert_same_run(f"whole/{name}", f"runs/{name}")
        assert rows_of(f"whole/{name}") == rows_of(f"runs/{name}")
