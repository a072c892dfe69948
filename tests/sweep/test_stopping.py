"""Ctrl-C leaves runs that can be resumed, and no process behind."""

import os
import signal
import time
from pathlib import Path

import pytest

SWEEP = [Path(__file__).with_name("stubbed.py"), "sweep", "tiny.yaml", "--encodings", "alibi,rope,t5"]


@pytest.fixture
def wait_for(stub):
    """Wait until so many runs have begun."""

    def wait_for(count):
        limit = time.monotonic() + 200
        while sum(line[0] == "begin" for line in stub()) < count:
            assert time.monotonic() < limit, "the runs have not begun"
            time.sleep(0.02)

    return wait_for


def alive(folder):
    """Processes that have to do with a run."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if folder in file.read_bytes().decode(errors="replace") and str(Path.cwd()) == os.readlink(
                file.parent / "cwd"
            ):
                found.append(file)
        except OSError:
            continue
    return found


@pytest.mark.launch
def test_stopped_runs_are_saved_and_go_on(started, stub, wait_for, steps_of):
    Path("slow").write_text("20")
    process = started(*SWEEP, "--jobs", 2)
    wait_for(2)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130 and "Traceback" not in err and out == ""
    assert "continue: python -m zoo sweep tiny.yaml --encodings 'alibi, rope, t5' --seeds 0" in err
    assert not alive("runs/alibi_tiny_s0") and not alive("runs/rope_tiny_s0")
    done = [steps_of(f"runs/{name}_tiny_s0") for name in ("alibi", "rope")]
    assert all(0 < steps < 6 for steps in done) and not Path("runs/t5_tiny_s0").exists()
    Path("slow").unlink()
    process = started(*SWEEP)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    firsts = [(name, int(step)) for what, name, step, _ in stub() if what == "begin"][2:]
    assert firsts == [("alibi_tiny_s0", done[0]), ("rope_tiny_s0", done[1]), ("t5_tiny_s0", 0)]
    assert out.split() == ["compared", *(f"runs/{name}_tiny_s0" for name in ("alibi", "rope", "t5"))]


@pytest.mark.launch
def test_runs_end_with_a_sweep_that_is_killed(started, stub, wait_for):
    Path("slow").write_text("600")
    process = started(*SWEEP)
    wait_for(1)
    process.kill()
    process.communicate()
    limit = time.monotonic() + 90
    while alive("runs/alibi_tiny_s0"):
        assert time.monotonic() < limit
        time.sleep(0.05)
