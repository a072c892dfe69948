"""A checkpoint is data: no code in it is run."""

import os

import pytest
import torch

import zoo
from zoo import cli
from zoo.errors import InputError

# No command runs code from a file


class Runs:
    """Pickled, it is a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.fixture
def doors(run, here):
    """A function for each command that reads a file in a run folder."""
    recipe = str(run / "recipe.yaml")
    commands = {
        "evaluate": ["evaluate", str(run)],
        "resume": ["fit", "--recipe", recipe, "--out", str(run), "--resume", "--set", "trainer.max_steps=4"],
        "init_from": ["fit", "--recipe", recipe, "--out", "new", "--set", f"init_from={run}"],
        "compare": ["compare", str(run)],
        "list": ["list", "runs"],
        "show": ["show", recipe],
    }
    doors = {name: lambda given=given: cli.main(given) for name, given in commands.items()}

    def load():
        try:
            zoo.load(run)
        except InputError:
            return 2
        return 0

    return doors | {"load": load}


READING = ("evaluate", "resume", "init_from", "load")
"""The commands that read the checkpoint, and refuse it."""


@pytest.mark.slow
def test_code_in_a_pickle_is_run_by_no_command(run, last, doors, here):
    mark = here / "mark"
    content = torch.load(last, weights_only=True)
    content["callbacks"]["trap"] = {"state": Runs(os.system, f"touch {mark}")}
    torch.save(content, last)
    for name, door in doors.items():
        assert door() == (2 if name in READING else 0), name
        assert not mark.exists(), name
    # The trap is one: a reader that trusts the file falls into it.
    torch.load(last, weights_only=False)
    assert mark.exists()
