"""Finished runs are skipped, others continue, and a failure stops no other run."""

import shlex
import shutil
from pathlib import Path

import pytest
from measured import measurements_of

from zoo import cli
from zoo.errors import InputError, RunError
from zoo.sweep.plan import covers
from zoo.sweep.sweep import Sweep

PAIR = ["alibi_tiny_s0", "rope_tiny_s0"]
EVERY = [*PAIR, "alibi_tiny_s1", "rope_tiny_s1"]


@pytest.fixture
def go(stub, tiny):
    """Sweep alibi and rope over a seed; gives the (run, first step) of the runs begun by it."""

    def go(seeds=(0,), how="run", **more):
        before = len(stub())
        getattr(Sweep(tiny, ["alibi", "rope"], seeds, **more), how)()
        return begun(stub()[before:])

    return go


def begun(times):
    return [(name, int(step)) for what, name, step, *_ in times if what == "begin"]


def at_once(times):
    """The largest number of runs that were going at one time."""
    going, most = 0, 0
    for what, *_ in times:
        going += 1 if what == "begin" else -1
        most = max(most, going)
    return most


def content(folder):
    return {str(f): f.read_bytes() for f in sorted(Path(folder).rglob("*")) if f.is_file()}


def test_every_run_is_run_once_and_then_compared(go, compared, stub, capsys):
    assert go((0, 1)) == [(name, 0) for name in EVERY]
    assert compared == [(EVERY, "runs/tiny_comparison")]
    assert at_once(stub()) == 1
    message = capsys.readouterr().err
    assert (
        "4 runs (0 finished, 4 to do)" in message
        and "[2/4] rope_tiny_s0: finished" in message
        and "left" in message
    )
    assert go((0, 1)) == [] and compared[1:] == compared[:1]
    assert "all 4 runs of tiny are finished already" in capsys.readouterr().err


def test_a_stopped_run_goes_on_from_its_checkpoint(go, stub, compared, steps_of, capsys):
    Path("kills").write_text("alibi_tiny_s0")
    with pytest.raises(RunError, match=r"1 of 2 runs failed") as caught:
        go()
    assert "killed by SIGKILL: out of memory?" in str(caught.value)
    assert [name for name, _ in begun(stub())] == PAIR  # the other was run nevertheless
    assert compared == [(PAIR[1:], "runs/tiny_comparison")] and steps_of("runs/alibi_tiny_s0") == 4
    Path("kills").unlink()
    assert go() == [("alibi_tiny_s0", 4)] and compared[-1][0] == PAIR


def test_a_trained_run_is_evaluated(go):
    go()
    shutil.rmtree("runs/rope_tiny_s0/evaluation")
    assert go() == [("rope_tiny_s0", 6)]
    assert go() == []
    # Lengths that were not measured are measured, of all runs.
    lengths = ["evaluate.lengths=[8, 64]"]
    assert go(sets=lengths) == [(name, 6) for name in PAIR]
    assert go(sets=lengths) == go(sets=["evaluate.lengths=[64]"]) == []


def test_a_failure_is_reported_with_its_log_and_a_command(go, compared, tiny):
    Path("fails").write_text("rope_tiny_s0")
    with pytest.raises(RunError) as caught:
        go()
    text = str(caught.value)
    assert compared[0][0] == ["alibi_tiny_s0"]
    assert "1 of 2 runs failed" in text and text.count("ValueError: the loss is NaN") == 1
    log = Path("runs/logs/rope_tiny_s0.log")
    assert f"log: {log}" in text and "Traceback" in log.read_text()
    assert "python -m zoo sweep tiny.yaml --encodings 'alibi, rope' --seeds 0 --out runs" in text
    # Without a checkpoint it begins anew, and its log is continued.
    assert not Path("runs/rope_tiny_s0/checkpoints").exists()
    Path("fails").unlink()
    assert go() == [("rope_tiny_s0", 0)]
    assert log.read_text().count("$ python -m zoo fit") == 2 and "Traceback" in log.read_text()


def test_a_run_of_another_recipe_is_never_touched(go, stub):
    go()
    before, runs = content("runs"), len(stub())
    for change in ("optimizer.lr=1", "trainer.max_steps=9", "trainer.max_steps=5"):
        with pytest.raises(InputError) as caught:
            go((1, 0), sets=[change])
        text = str(caught.value)
        for name in PAIR:
            assert f"runs/{name}" in text
        assert change.partition("=")[0] in text and "choose another --out" in text
        assert content("runs") == before and len(stub()) == runs  # not even the runs of seed 1


def test_a_run_can_be_made_longer_where_that_is_the_same_run(go):
    constant = "optimizer.schedule=constant"
    go(sets=[constant])
    assert go(sets=[constant, "trainer.max_steps=9"]) == [(name, 6) for name in PAIR]


def test_everything_in_the_way_is_reported_at_once(go, stub):
    for name in PAIR:
        folder = Path("runs") / name
        folder.mkdir(parents=True)
        (folder / "thesis.tex").write_text("")
    Path("runs/tiny_comparison").mkdir()
    Path("runs/tiny_comparison/thesis.tex").write_text("")
    with pytest.raises(InputError) as caught:
        go()
    assert len(caught.value.problems) == 3 and stub() == []


def test_printed_commands_are_those_that_are_run(go, capsys, stub):
    quoted = ["init_from=it's $HOME"]
    assert go(how="print_commands", sets=quoted) == []
    lines = capsys.readouterr().out.splitlines()
    go(sets=quoted)
    logs = [Path("runs/logs", f"{name}.log").read_text().splitlines()[0] for name in PAIR]
    assert [f"$ {line}" for line in lines] == logs
    assert all(line.endswith("--resume auto") for line in lines)
    assert all(shlex.split(line)[:4] == ["python", "-m", "zoo", "fit"] for line in lines)
    assert all(quoted[0] in shlex.split(line) for line in lines)
    capsys.readouterr()
    assert go(how="print_commands", sets=quoted) == [] and capsys.readouterr().out == ""


def test_finished_runs_can_be_compared_alone(go, compared):
    Path("fails").write_text("rope_tiny_s0")
    for how in ("run", "compare"):
        with pytest.raises(RunError, match="1 of 2 runs failed"):
            go(how=how)
    assert compared == [(["alibi_tiny_s0"], "runs/tiny_comparison")] * 2


@pytest.mark.parametrize("arguments", [
    ["tiny.yaml"], ["tiny.yaml", "--encodings", "alibi", "--seeds=-1"],
    ["tiny.yaml", "--encodings", "alibi", "--jobs", "0"],
])  # fmt: skip
def test_wrong_arguments_are_exit_2(stub, arguments):
    with pytest.raises(SystemExit) as caught:
        cli.main(["sweep", *arguments])
    assert caught.value.code == 2 and stub() == []


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
