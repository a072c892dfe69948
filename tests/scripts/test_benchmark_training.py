"""The benchmarks of a training step and of a restart run on the current code."""

import re
import runpy
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


SMALL = ("model.num_layers=1", "data.documents=12", "data.words=60", "data.vocab_size=300",
         "data.sequence_length=16", "trainer.limit_val_batches=1")  # fmt: skip


@pytest.fixture
def ratio_of(monkeypatch, capsys):
    def ratio_of(script, *arguments):
        monkeypatch.setattr(sys, "argv", [str(SCRIPTS / script), *arguments, "--rounds", "1"])
        runpy.run_path(sys.argv[0], run_name="__main__")
        return float(re.search(r"(?:median|takes) (\d+\.\d+)", capsys.readouterr().out)[1])

    return ratio_of


@pytest.mark.slow
def test_a_step(ratio_of):
    sets = (part for one in SMALL for part in ("--set", one))
    assert ratio_of("benchmark_step.py", "--steps", "12", *sets) > 0


@pytest.mark.launch
def test_a_restart_amid_a_large_epoch(ratio_of):
    """The script itself asserts that the resumed side begins at the step that its checkpoint was moved to."""
    assert ratio_of("benchmark_restart.py", "--tokens", "2e6") > 0
