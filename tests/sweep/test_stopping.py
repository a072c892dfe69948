"""Ctrl-C leaves runs that can be resumed, and no process behind."""

import os
import signal
from pathlib import Path

import pytest
from killed_runs import alive_in_group, texts, wait_for

STUB = Path(__file__).with_name("fit_stub.py")
SWEEP = ["sweep", "tiny.yaml", "--encodings", "alibi,rope,t5"]


@pytest.fixture
def begun(stub):
    """The runs begun so far: name, first step and process."""
    return lambda: [(name, int(step), int(pid)) for what, name, step, _, pid in stub() if what == "begin"]


def test_stopped_runs_are_saved_and_go_on(forks, here, begun, steps_of):
    Path("slow").write_text("20")
    (process,) = forks.start([*SWEEP, "--jobs", 2], here, here / "log", patch=STUB)
    assert wait_for(lambda: len(begun()) == 2), texts(here / "log")
    os.killpg(process, signal.SIGINT)
    assert forks.wait([process]) == [130]
    text = texts(here / "log")
    assert "Traceback" not in text and "compared" not in text
    assert "continue: python -m zoo sweep tiny.yaml --encodings 'alibi, rope, t5' --seeds 0" in text
    assert not any(alive_in_group(pid) for *_, pid in begun())
    done = [steps_of(f"runs/{name}_tiny_s0") for name in ("alibi", "rope")]
    assert all(0 < steps < 6 for steps in done) and not Path("runs/t5_tiny_s0").exists()
    Path("slow").unlink()
    text = forks.run(SWEEP, here, "again", patch=STUB)
    firsts = [(name, step) for name, step, _ in begun()[2:]]
    assert firsts == [("alibi_tiny_s0", done[0]), ("rope_tiny_s0", done[1]), ("t5_tiny_s0", 0)]
    assert " ".join(["compared", *(f"runs/{name}_tiny_s0" for name in ("alibi", "rope", "t5"))]) in text


def test_runs_end_with_a_sweep_that_is_killed(forks, here, begun):
    Path("slow").write_text("600")
    (process,) = forks.start(SWEEP, here, here / "log", patch=STUB)
    assert wait_for(begun), texts(here / "log")
    os.kill(process, signal.SIGKILL)
    assert forks.wait([process]) == [-signal.SIGKILL]
    assert wait_for(lambda: not alive_in_group(begun()[0][-1]))
