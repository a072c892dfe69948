"""A sweep of real runs."""

import json
from pathlib import Path

import pytest

PLUGIN = """\
import zoo
from zoo import registry


@zoo.register("brittle")
class Brittle(registry.encodings.load("alibi")):
    def bias(self, head, q, k):
        raise ArithmeticError("not today")
"""
SWEEP = ("sweep", "tiny.yaml", "--set", "plugins=[brittle.py]", "--encodings")


@pytest.fixture
def brittle(tiny):
    """A plugin whose models cannot be trained."""
    Path("brittle.py").write_text(PLUGIN)


@pytest.mark.launch
def test_one_fails_and_the_rest_is_compared(zoo_command, brittle):
    done = zoo_command(*SWEEP, "brittle,alibi")
    assert done.returncode == 1, done.stderr
    assert "1 of 2 runs failed" in done.stderr and "ArithmeticError: not today" in done.stderr
    assert "alibi" in done.stdout and Path("runs/tiny_comparison/index.html").is_file()
    assert json.loads(Path("runs/alibi_tiny_s0/card.json").read_text())["finished"] is True
