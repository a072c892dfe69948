"""A run that is killed again and again, at any place, ends as the run that was never killed.

With the environment variable ZOO_KILL_ALL more kinds of runs are killed.
"""

import os
import random
import signal

import pytest
import yaml
from killed_runs import alive_in_group, assert_same_run, kill_group, wait_for
from run_files import settings

pytestmark = pytest.mark.slow

SEED = 5
CHANCE = random.Random(SEED)
STEPS, EVERY = 28, 4
# kind, processes, settings, where it is killed one time after the other. An epoch of the text has 19 steps.
CHAINS = {
    "text": ("text", 1, ["data.workers=0"], [
        ("step", 2),  # before there is a checkpoint
        ("replace last.ckpt", 0), ("fsync last.ckpt", 8), ("validation", 8), ("fsync best.ckpt", 8),
        ("step", CHANCE.randrange(9, 15)), ("update", 18), ("evaluation", 0),
    ]),
    "workers": ("text", 1, ["data.workers=2", "trainer.accumulate_grad_batches=2", "data.batch_size=8"], [
        ("fsync last.ckpt", 0), ("step", CHANCE.randrange(4, 8)), ("validation", 12),
        ("replace best.ckpt", 16),
    ]),
    # Validated after 2.5, 5, 7.5 ... steps: a fraction of an epoch may end within a step.
    "parts": ("text", 1, ["trainer.accumulate_grad_batches=4", "trainer.val_check_interval=0.054"], [
        ("validation", 2), ("validation", 7), ("fsync last.ckpt", 8), ("validation", 10), ("step", 17),
    ]),
    "max_index": ("max_index", 1, ["data.workers=2"], [
        ("update", 1), ("validation", 4), ("fsync last.ckpt", STEPS), ("validation", STEPS),
    ]),
    "two processes": ("text", 2, [
        "trainer.devices=2", "trainer.strategy=ddp", "trainer.accumulate_grad_batches=2",
    ], [
        ("step", 1), ("validation", 4), ("step", CHANCE.randrange(9, 16)), ("update", 18),
    ]),
}  # fmt: skip
ALL = bool(os.environ.get("ZOO_KILL_ALL"))
# The loader's processes notice by themselves, some seconds later; it is resumed at once.
KILLED_ALONE = ("workers",)


@pytest.fixture
def command(here, mapping):
    """The arguments of `zoo fit` for a recipe, which is written in the working directory."""

    def command(kind, out, *sets):
        made = {key: value for key, value in mapping(kind).items() if key != "name"}
        (here / f"{kind}.yaml").write_text(yaml.safe_dump(made))
        sets = ["model.dropout=0.1", f"trainer.max_steps={STEPS}", f"checkpoint.every_n_steps={EVERY}",
                "trainer.log_every_n_steps=3", *sets]  # fmt: skip
        return ["fit", "--recipe", f"{kind}.yaml", "--out", out, *settings(*sets)]

    return command


def ended_well(forks, pids, log):
    codes = forks.wait(pids)
    text = "".join(file.read_text() for file in sorted(log.parent.glob(log.name + ".[0-9]")))
    assert codes == [0] * len(pids), text
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("name", CHAINS if ALL else ["text", "two processes"])
def test_a_run_killed_again_and_again_is_the_full_run(forks, here, command, name):
    kind, world_size, sets, moments = CHAINS[name]
    print(f"seed {SEED}: {moments}")
    whole = forks.start(command(kind, "whole", *sets), here, here / "whole.log", world_size)
    for number, (where, step) in enumerate(moments):
        log = here / f"killed{number}.log"
        arguments = [*command(kind, "killed", *sets), *(["--resume"] if number else [])]
        pids = forks.start(arguments, here, log, world_size, halt=(where, step))
        forks.wait_for_halt(pids, log)
        if name in KILLED_ALONE:
            assert len(alive_in_group(pids[0])) > 2, "the loader has no processes"
            os.kill(pids[0], signal.SIGKILL)
        else:
            kill_group(pids[0])
        assert forks.wait(pids) == [-signal.SIGKILL] * world_size
        assert name in KILLED_ALONE or wait_for(lambda group=pids[0]: not alive_in_group(group))
    ended_well(forks, whole, here / "whole.log")
    pids = forks.start([*command(kind, "killed", *sets), "--resume"], here, here / "last.log", world_size)
    ended_well(forks, pids, here / "last.log")
    assert_same_run(here / "whole", here / "killed")
