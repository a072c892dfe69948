"""Ctrl-C leaves runs that go on, no process behind, and two sweeps never do the same run."""

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
        limit = time.monotonic() + 60
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_runs_are_saved_and_go_on(started, stub, wait_for, steps_of, number):
    Path("slow").write_text("20")
    process = started(*SWEEP, "--jobs", 2)
    wait_for(2)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err and out == ""
    assert "continue: python -m zoo sweep tiny.yaml --encodings 'alibi, rope, t5' --seeds 0" in err
    assert not alive("runs/alibi_tiny_s0") and not alive("runs/rope_tiny_s0")
    done = [steps_of(f"runs/{name}_tiny_s0") for name in ("alibi", "rope")]
    assert all(0 < steps < 6 for steps in done) and not Path("runs/t5_tiny_s0").exists()
    Path("slow").unlink()
    process = started(*SWEEP)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    firsts = [(name, int(step)) for what, name, step, _ in stub() if what == "begin"][2:]
    assert firsts == [("alibi_tiny_s0", done[0]), ("rope_tiny_s0", done[1]), ("t5_tiny_s0", 0)]
    assert out.split() == ["compared", *(f"runs/{name}_tiny_s0" for name in ("alibi", "rope", "t5"))]


def test_two_sweeps_share_the_runs(started, stub):
    Path("slow").write_text("1")
    both = [started(*SWEEP) for _ in range(2)]
    for process in both:
        process.communicate(timeout=120)
    begun = [name for what, name, *_ in stub() if what == "begin"]
    assert sorted(begun) == sorted(f"{name}_tiny_s0" for name in ("alibi", "rope", "t5"))
    # Each has waited for what the other was at.
    assert [process.returncode for process in both] == [0, 0]


def test_a_run_that_outlives_its_sweep_is_left_alone_until_it_ends(started, stub, wait_for):
    Path("slow").write_text("600")  # it is killed below, however slow the machine is
    process = started(*SWEEP)
    wait_for(1)
    process.kill()
    process.communicate()
    assert alive("runs/alibi_tiny_s0")
    Path("slow").unlink()
    again = started(*SWEEP)
    wait_for(3)
    (orphan,) = {int(file.parent.name) for file in alive("runs/alibi_tiny_s0")}
    os.kill(orphan, signal.SIGKILL)
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0 and "alibi_tiny_s0: another sweep is at it" in err
    begun = [name for what, name, *_ in stub() if what == "begin"]
    assert begun == [f"{name}_tiny_s0" for name in ("alibi", "rope", "t5", "alibi")]
