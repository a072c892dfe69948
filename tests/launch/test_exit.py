"""How the process of a command ends."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, tempfile
import torch.distributed as dist
from zoo import cli
from zoo.__main__ import run

class Blocking:
    def __del__(self):
        if sys.is_finalizing():
            print("the interpreter was torn down", flush=True)

blocking = Blocking()

def main():
    dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
    print("not flushed yet", end="")
    END

atexit.register(print, "; exit handlers have run")
cli.main = main
sys.exit(run())
"""


@pytest.mark.launch
@pytest.mark.parametrize(
    "end, code, stderr",
    [
        ("return 3", 3, ""),
        ("raise ZeroDivisionError('a bug')", 1, "ZeroDivisionError: a bug"),
    ],
)
def test_a_process_group_is_left_without_teardown(end, code, stderr):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("END", end)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code and stderr in done.stderr, done.stderr
    assert done.stdout == "not flushed yet; exit handlers have run\n"
