"""A signal before a command has begun its work: one line and exit code 130, whatever was being imported."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from killed_runs import ROOT, alive_in_group, kill_group, wait_for
from ports import free_port

from zoo.training.fit import fit

pytestmark = pytest.mark.slow

SAID = "interrupted; nothing was written\n"
LATER = "interrupted before training began; nothing was written\n"


@pytest.fixture
def zoo(here, mapping):
    """Start `python -m zoo ...` in a group of its own, and leave nothing of it."""
    started = []
    (here / "text.yaml").write_text(yaml.safe_dump(mapping("text")))
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def zoo(*arguments):
        environment = {**os.environ, **own}
        process = subprocess.Popen(
            [sys.executable, "-m", "zoo", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield zoo
    for process in started:
        kill_group(process.pid)
        process.communicate()


def handles(process, number):
    """Whether a process has a handler of its own for a signal."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def started(zoo, *arguments):
    """A command from whose very beginning on signals are heard."""
    process = zoo(*arguments)
    # Python itself takes SIGINT, and SIGTERM is nobody's until then.
    assert wait_for(lambda: handles(process, signal.SIGTERM), 30)
    return process


def ended(process, number, seconds=60):
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_fit_imports(zoo, here, number):
    moments = [0.13 * step for step in range(20)]
    for moment in moments:
        process = started(
            zoo, "fit", "--recipe", "text.yaml", "--out", "run", "--set", "logging=[tensorboard]"
        )
        time.sleep(moment)
        code, out, err = ended(process, number)
        assert (code, out) == (130, "") and err in (SAID, LATER), (moment, err)
    assert not (here / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [["evaluate", "run"], ["compare", "run"], ["sweep", "text.yaml", "--encodings", "alibi,none"],
     ["check", "alibi"]],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_while_another_verb_imports(zoo, here, arguments):
    (here / "run").mkdir()
    for number, moment in [(signal.SIGTERM, 0.05), (signal.SIGINT, 0.1), (signal.SIGTERM, 0.15)]:
        process = started(zoo, *arguments)
        time.sleep(moment)
        assert ended(process, number) == (130, "", SAID), moment


def test_while_the_processes_of_an_evaluation_meet(zoo, here, recipe):
    fit(recipe("text"), here / "run")
    codes = []
    # Over the imports of the second process, their meeting and the measuring, on any machine.
    for moment in [1.5, 2.5, 3.5, 4.5, 5.5, 6.5]:
        process = started(zoo, "evaluate", "run", "--devices", "2", "--set", "trainer.accelerator=cpu")
        time.sleep(moment)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        codes.append(process.returncode)
        assert wait_for(lambda group=process.pid: not alive_in_group(group), 10)
        if codes[-1] == 130:
            assert err.startswith("interrupted; ") and err.count("\n") == 1, (moment, err)
        else:
            assert (codes[-1], err) == (0, ""), moment
    assert codes.count(130) >= 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.1, 0.2, 0.3])
def test_after_the_last_line_a_signal_changes_nothing(zoo, here, recipe, number, seconds):
    fit(recipe("text"), here / "run")
    process = zoo("evaluate", "run")
    assert any("index.html" in line for line in process.stdout)
    time.sleep(seconds)  # Python is tearing down its modules, torch among them
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_waits_for_another_process_handles_a_signal(zoo, here, recipe, number, monkeypatch):
    fit(recipe("text"), here / "run")
    # A second process that never comes.
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    monkeypatch.setenv("LOCAL_RANK", "0")
    process = zoo("evaluate", "run", "--set", "trainer.accelerator=cpu")
    # It listens: from then on it is in torch's hands.
    assert wait_for(lambda: is_listening(int(os.environ["MASTER_PORT"])), 60)
    time.sleep(0.5)
    assert ended(process, number, 10) == (130, "", SAID)


def is_listening(port):
    lines = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    return f":{port:04X} " in lines
