"""Output on a terminal that only shows ASCII, and commands in a deleted working directory."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zoo.console import show_all

ROOT = Path(__file__).parents[1]


def run_zoo(*arguments, cwd, **environment):
    kept = {key: value for key, value in os.environ.items() if key not in ("RANK", "LOCAL_RANK")}
    kept |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment}
    command = [sys.executable, "-m", "zoo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, env=kept, timeout=300, cwd=cwd)


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_characters_that_a_stream_cannot_show_become_ascii(monkeypatch, errors):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", errors))
    show_all()
    print("0.5 ± 0.1 – “2×” ¹² é \udcff \U0001f600")
    sys.stdout.flush()
    assert written.getvalue() == b'0.5 +/- 0.1 - "2x" ^1^2 \\xe9 \\udcff \\U0001f600\n'


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


@pytest.mark.slow
def test_every_verb_runs_where_only_ascii_is_shown(here, mapping):
    """Under names that ASCII lacks, and with results that have a dash between the ends of an interval."""
    made = {**mapping("max_index"), "name": "tiny"}
    (here / "récipe.yaml").write_text(yaml.safe_dump(made))

    def expected(*arguments, code=0):
        done = run_zoo(*arguments, cwd=here, **ASCII)
        assert done.returncode == code, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return (done.stdout + done.stderr).decode("ascii")

    for seed in (0, 1):
        out = ["--out", f"runs/é{seed}"]
        assert "trained" in expected("fit", "--recipe", "récipe.yaml", "--set", f"seed={seed}", *out)
    assert "name: tiny" in expected("show", "récipe.yaml")
    assert "accuracy" in expected("evaluate", "runs/é0", "--lengths", "8,16")
    assert "(low-high): 95 % interval" in expected("compare", "runs/é0", "runs/é1")
    assert "seed" in expected("compare", "--diff", "runs/é0", "runs/é1")
    assert "runs/" in expected("list", "runs")
    assert "t5" in expected("list", "encodings")
    assert "laws" in expected("check", "none")
    assert expected("sweep", "récipe.yaml", "--encodings", "rope,none", "--print-commands")
    assert expected("sweep", "récipe.yaml", "--encodings", "rope", "--set", "trainer.max_steps=2")
    assert "did you mean" in expected("fit", "--recipe", "réctpe.yaml", code=2)
    assert "no such run" in expected("evaluate", "runs/é9", code=2)


@pytest.mark.launch
@pytest.mark.parametrize("arguments", [["fit", "--recipe", "x.yaml"], ["list", "recipes"]])
def test_a_deleted_working_directory_is_one_message(tmp_path, arguments):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    command = ["sh", "-c", script, "sh", gone, sys.executable, "-m", "zoo", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2, done.stderr
    assert "working directory" in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == ""
