"""Output on a terminal that only shows ASCII."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zoo.console import show_all

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_characters_that_a_stream_cannot_show_become_ascii(monkeypatch, errors):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", errors))
    show_all()
    print("0.5 ± 0.1 – “2×” ¹² é \udcff \U0001f600")
    sys.stdout.flush()
    assert written.getvalue() == (
        b"0.5 \\xb1 0.1 \\u2013 \\u201c2\\xd7\\u201d \\xb9\\xb2 \\xe9 \\udcff \\U0001f600\n"
    )


def test_lone_surrogates_do_not_raise_under_utf8(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "utf-8"))
    show_all()
    print("± r\udcffn")
    sys.stdout.flush()
    assert written.getvalue() == "± r\\udcffn\n".encode()


def test_a_stream_that_takes_any_text_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", None)
    show_all()
    print("±")
    assert sys.stdout.getvalue() == "±\n"


ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "LANG": "C"}
PROGRAM = """
import sys
from zoo.console import show_all
show_all()
from zoo.cli import main
for command in sys.argv[1:]:
    print("exit code", main(command.split()), flush=True)
"""


@pytest.mark.slow
def test_every_verb_runs_on_a_terminal_that_only_shows_ascii(here, mapping):
    """With file names that are not ASCII, and with intervals, which have a dash between their ends."""
    (here / "récipe.yaml").write_text(yaml.safe_dump({**mapping("max_index"), "name": "tiny"}))
    commands = {
        "fit --recipe récipe.yaml --set seed=0 --out runs/é0": "trained",
        "fit --recipe récipe.yaml --set seed=1 --out runs/é1": "trained",
        "show récipe.yaml": "name: tiny",
        "evaluate runs/é0 --lengths 8,16": "accuracy",
        "compare runs/é0 runs/é1": "high): 95 % interval",
        "compare --diff runs/é0 runs/é1": "seed",
        "list runs": "runs/",
        "list encodings": "t5",
        "check none": "laws",
        "sweep récipe.yaml --encodings rope,none --print-commands": "rope",
        "fit --recipe réctpe.yaml": "did you mean",
        "evaluate runs/é9": "no such run",
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *commands], capture_output=True, timeout=300, cwd=here,
        env=environment | ASCII,
    )  # fmt: skip
    output = done.stdout.decode("ascii") + done.stderr.decode("ascii")
    codes = [int(line.split()[-1]) for line in output.splitlines() if line.startswith("exit code")]
    assert codes == [0] * 10 + [2, 2], output
    assert [expected for expected in commands.values() if expected not in output] == []
