"""Finished runs are skipped, others continue, and a failure stops no other run."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from killed_runs import alive_in_group, wait_for
from measured import measurements_of
from run_files import saved

from zoo import cli
from zoo.runs.folder import write_recipe
from zoo.sweep.folder import covers

SWEEP = ["sweep", "tiny.yaml", "--encodings", "alibi,rope"]
PAIR = ["alibi_tiny_s0", "rope_tiny_s0"]
PLUGIN = """\
import zoo
from zoo import registry


@zoo.register("brittle")
class Brittle(registry.encodings.load("alibi")):
    def bias(self, head, q, k):
        raise ArithmeticError("not today")
"""


@pytest.mark.slow
@pytest.mark.launch
def test_one_fails_and_the_rest_is_compared(tiny, environment, capsys):
    Path("brittle.py").write_text(PLUGIN)
    command = [*SWEEP[:3], "brittle,alibi", "--set", "plugins=[brittle.py]"]
    assert cli.main(command) == 1
    out, err = capsys.readouterr()
    assert "2 runs (0 finished, 2 to do)" in err and "[2/2] alibi_tiny_s0: finished" in err
    log = Path("runs/logs/brittle_tiny_s0.log")
    assert "1 of 2 runs failed" in err and err.count("ArithmeticError: not today") == 2
    assert f"    log: {log}" in err and "ArithmeticError: not today" in log.read_text()
    assert f"tried again by: python -m zoo {shlex.join(command)}" in err
    assert "alibi" in out and Path("runs/tiny_comparison/index.html").is_file()
    card = Path("runs/alibi_tiny_s0/card.json")
    assert json.loads(card.read_text())["finished"] is True
    # Again: only what is missing.
    written = card.stat().st_mtime_ns
    assert cli.main(command) == 1 and card.stat().st_mtime_ns == written
    assert log.read_text().count("$ python -m zoo fit") == 2
    # A trained run is only evaluated: what its folder lacks, and further lengths.
    shutil.rmtree("runs/alibi_tiny_s0/evaluation")
    only = [*SWEEP[:3], "alibi", "--set", "plugins=[brittle.py]"]
    assert cli.main([*only, "--list"]) == 0 and "tiny: 0 of 1 done" in capsys.readouterr().out
    assert cli.main([*only, "--set", "evaluate.lengths=[8, 64]"]) == 0
    assert json.loads(card.read_text())["steps"] == saved(card.parent)["global_step"]
    assert cli.main([*only, "--set", "evaluate.lengths=[64]", "--list"]) == 0
    assert capsys.readouterr().out.endswith("tiny: 1 of 1 done\n")


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [*map(int, found.stdout.split())]


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_sweep_leaves_no_process_and_goes_on(tiny, environment, capfd, number):
    endless = ["--set", "trainer.max_steps=100000", "--set", "optimizer.schedule=constant"]
    metrics = [Path("runs", name, "metrics.csv") for name in PAIR]
    command = [sys.executable, "-m", "zoo", *SWEEP, *endless, "--jobs", "2"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        assert wait_for(lambda: all(file.exists() for file in metrics), 300), capfd.readouterr().err
        groups = children(process.pid)
        os.kill(process.pid, number)
        process.wait(300)
    finally:
        process.kill()
    assert len(groups) == 2 and wait_for(lambda: not any(map(alive_in_group, groups)))
    if number == signal.SIGKILL:
        return
    assert process.returncode == 130
    text = capfd.readouterr().err
    assert f"continue: python -m zoo {shlex.join([*SWEEP, *endless])} --jobs 2" in text
    steps = [saved(file.parent)["global_step"] for file in metrics]
    assert min(steps) > 0 and "Traceback" not in text
    most = max(steps) + 1
    assert cli.main([*SWEEP, *endless, "--set", f"trainer.max_steps={most}"]) == 0
    assert [saved(file.parent)["global_step"] for file in metrics] == [most] * 2
    assert all("continuing" in Path("runs/logs", f"{name}.log").read_text() for name in PAIR)


def test_a_run_of_another_recipe_is_never_touched(planned, capsys):
    for run in planned("alibi,rope"):
        run.folder.mkdir(parents=True)
        write_recipe(run.folder, run.recipe)
    before = {file: file.read_bytes() for file in Path("runs").rglob("*.yaml")}
    assert cli.main([*SWEEP, "--seeds", "1,0", "--set", "optimizer.lr=1"]) == 2
    text = capsys.readouterr().err
    assert all(f"runs/{name}" in text for name in PAIR)
    assert "optimizer.lr" in text and "choose another --out" in text
    assert {file: file.read_bytes() for file in Path("runs").rglob("*") if file.is_file()} == before


def test_everything_in_the_way_is_reported_at_once(tiny, capsys):
    for name in [*PAIR, "tiny_comparison"]:
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "thesis.tex").write_text("")
    assert cli.main(SWEEP) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_printed_commands_have_the_recipes_of_the_runs(planned, capsys):
    quoted = ["--set", "init_from=it's $HOME"]
    assert cli.main([*SWEEP, *quoted, "--print-commands"]) == 0
    runs = planned("alibi,rope", sets=quoted[1:])
    out, err = capsys.readouterr()
    assert [shlex.split(line) for line in out.splitlines()] == [
        ["python", "-m", "zoo", *run.command.words] for run in runs
    ]
    assert f"then: python -m zoo {shlex.join([*SWEEP, *quoted])} --compare-only" in err
    assert all(run.command.words[-2:] == ["--resume", "auto"] for run in runs)


def test_finished_runs_can_be_compared_alone(untrained, capsys):
    begun, _, compared = untrained
    Path("runs/alibi_tiny_s0").mkdir(parents=True)
    assert cli.main([*SWEEP, "--compare-only"]) == 1
    assert "1 of 2 runs failed" in capsys.readouterr().err
    assert (begun, compared) == ([], [PAIR[:1]])


@pytest.mark.parametrize("arguments", [
    ["tiny.yaml"], ["tiny.yaml", "--encodings", "alibi", "--seeds=-1"],
    ["tiny.yaml", "--encodings", "alibi", "--jobs", "0"],
])  # fmt: skip
def test_wrong_arguments_are_exit_2(untrained, arguments):
    with pytest.raises(SystemExit) as caught:
        cli.main(["sweep", *arguments])
    assert caught.value.code == 2 and untrained[0] == []


@pytest.mark.parametrize("rows, covered", [
    ([{"length": 8}, {"length": 24}], True),
    ([{"length": 8}, {"length": 24, "note": "too long"}], True),
    ([{"length": 24}], False),
    ([{"length": n, "parameters": {"window": 16}} for n in (8, 16)], False),
])  # fmt: skip
def test_a_run_is_evaluated_once_it_has_what_its_recipe_asks_for(rows, covered):
    about = {
        "run": "a", "encoding": "alibi", "seed": 0, "train_length": 8, "step": 1, "checkpoint": "last.ckpt",
        "protocol": "p", "parameters": {},
    }  # fmt: skip
    assert covers(measurements_of([about | row for row in rows]), [8, 24]) == covered
