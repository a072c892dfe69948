"""The benchmarks of a training step and of a restart run on the current code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"


def ratio_of(script, *arguments):
    command = [sys.executable, str(SCRIPTS / script), *arguments, "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return float(re.search(r"(?:median|takes) (\d+\.\d+)", done.stdout)[1])


@pytest.mark.launch
def test_a_step():
    assert ratio_of("benchmark_step.py", "--steps", "12") > 0


@pytest.mark.launch
def test_a_restart_amid_a_large_epoch():
    """The script itself asserts that the resumed side begins at the step that its checkpoint was moved to."""
    assert ratio_of("benchmark_restart.py", "--tokens", "2e6") > 0
