"""A checkpoint is data: no code in it is run, and no file is written or removed because of it."""

import os
import shutil

import pytest
import torch
from small_run import change, resume

import zoo
from zoo import cli
from zoo.errors import InputError


def files_in(folder):
    return {
        file: (file.stat().st_mtime_ns, file.is_file() and file.read_bytes()) for file in folder.rglob("*")
    }


@pytest.mark.slow
def test_a_checkpoint_names_no_file_to_be_removed(run, last, here):
    victim = here / "victim"
    victim.write_text("mine")
    score = torch.tensor(float("inf"))
    paths = [str(victim), f"{run}/checkpoints/../../../victim"]

    def name_the_victim(content):
        for path in paths:
            state = {
                "monitor": "val/loss", "best_model_score": score, "best_model_path": path,
                "current_score": score, "dirpath": str(here), "best_k_models": {path: score},
                "kth_best_model_path": path, "kth_value": score, "last_model_path": path,
            }  # fmt: skip
            for key in [*content["callbacks"], "ModelCheckpoint", "LastCheckpoint"]:
                content["callbacks"][key] = dict(state)

    for name in ("best.ckpt", None):  # with the file that the score is of, and without
        if name:
            shutil.copy(last, last.parent / name)
        change(last, name_the_victim)
        resume(run, "checkpoint.every_n_steps=1", "trainer.max_steps=4" if name else "trainer.max_steps=6")
        assert victim.read_text() == "mine"
    assert sorted(path.name for path in here.iterdir() if path.name != "data") == ["runs", "victim"]


# No command runs code from a file


class Runs:
    """Pickled, it is a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


PLUGIN = """
import torch
import zoo

open({mark!r}, "w")


@zoo.register("marked")
class Marked(zoo.Encoding):
    def __init__(self, width: int = 4):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width))
"""


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


@pytest.mark.slow
def test_a_plugin_that_a_checkpoint_names_is_run_by_no_command(run, last, doors, here, forgetful_registry):
    mark, plugin = here / "mark", here / "plugin.py"
    plugin.write_text(PLUGIN.format(mark=str(mark)))

    def name_it(content):
        content["hyper_parameters"]["recipe"]["plugins"] = [str(plugin)]
        source = {"name": "marked", "file": str(plugin), "sha256": "0" * 64}
        content["zoo_card"]["code_source"] = [source]

    change(last, name_it)
    for name, door in doors.items():
        door()
        assert not mark.exists(), name

    def need_it(content):
        content["hyper_parameters"]["recipe"]["model"]["encoding"] = {"name": "marked"}

    change(last, need_it)
    for name, door in doors.items():
        assert door() == (2 if name in READING else 0) or name == "init_from", name
        assert not mark.exists(), name
    assert cli.main(["evaluate", str(run), "--set", f"plugins=[{plugin}]"]) == 2, "its weights are ALiBi's"
    assert mark.exists(), "the user has named it"
