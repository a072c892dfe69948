"""A sweep of real runs."""

import json
from pathlib import Path

import pytest

from zoo import cli

PLUGIN = """\
import zoo
from zoo import registry


@zoo.register("brittle")
class Brittle(registry.encodings.load("alibi")):
    def bias(self, head, q, k):
        raise ArithmeticError("not today")
"""


@pytest.mark.slow
def test_one_fails_and_the_rest_is_compared(tiny, alone, capsys):
    Path("brittle.py").write_text(PLUGIN)
    command = ["sweep", "tiny.yaml", "--set", "plugins=[brittle.py]", "--encodings", "brittle,alibi"]
    assert cli.main(command) == 1
    out, err = capsys.readouterr()
    assert "1 of 2 runs failed" in err and "ArithmeticError: not today" in err
    assert "alibi" in out and Path("runs/tiny_comparison/index.html").is_file()
    assert json.loads(Path("runs/alibi_tiny_s0/card.json").read_text())["finished"] is True
