"""What a checkpoint says is data: nothing in it is run, and no file is written or removed because of it."""

import ast
import os
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from small_run import change, resume

import zoo
from zoo import cli
from zoo.errors import InputError
from zoo.files import atomic_write
from zoo.reports.evaluate import evaluate


def files_in(folder):
    return {
        file: (file.stat().st_mtime_ns, file.is_file() and file.read_bytes()) for file in folder.rglob("*")
    }


@pytest.mark.slow
def test_a_cache_that_only_a_checkpoint_names_is_not_written(text_run, here):
    folder, _, _ = text_run
    last, elsewhere = folder / "checkpoints" / "last.ckpt", here / "elsewhere"
    change(last, lambda content: content["hyper_parameters"]["recipe"]["data"].update(cache=str(elsewhere)))
    shutil.rmtree(here / "data")
    assert evaluate([folder])
    assert not elsewhere.exists() and (here / "data" / "cache").is_dir()
    # Tokens that are there are read.
    (here / "data" / "cache").rename(elsewhere)
    shutil.rmtree(here / "data")
    before = files_in(elsewhere)
    assert evaluate([folder])
    assert files_in(elsewhere) == before
    assert not list((here / "data" / "cache").glob("*/tokenizer.json")), "the tokens were made again"
    # What the user names is the user's wish.
    assert evaluate([folder], sets=[f"data.cache={here / 'mine'}"])
    assert list((here / "mine").glob("*/tokenizer.json"))


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
                "kth_best_model_path": path,
                "kth_value": score, "last_model_path": path,
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


# No door runs what a file holds


class Runs:
    """Pickled, it is a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class OfTheUser:
    """Pickled, it is looked up by its name, and its state is given to it."""

    def __setstate__(self, state):
        Path(state["mark"]).write_text("run")


def of_the_user(mark):
    made = OfTheUser()
    made.mark = mark
    return made


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

TRAPS = {
    "os.system": lambda mark: Runs(os.system, f"touch {mark}"),
    "builtins.exec": lambda mark: Runs(exec, f"open({mark!r}, 'w')"),
    "builtins.open": lambda mark: Runs(open, mark, "w"),
    "the zoo's own writer": lambda mark: Runs(atomic_write, Path(mark), "run"),
    "a plugin file": lambda mark: Runs(runpy.run_path, "marks.py"),
    "numpy": lambda mark: Runs(np.savetxt, mark, [1.0]),
    "torch.load": lambda mark: Runs(torch.save, [1], mark),
    "a class": of_the_user,
}


@pytest.fixture
def doors(run, here):
    """Every way in which a file in a run folder is read, each in a function of its own."""
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
"""The doors that read the checkpoint, and so have something to refuse."""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("trap", TRAPS)
def test_code_in_a_pickle_is_run_by_no_door(run, last, doors, here, forgetful_registry, trap, protocol):
    mark = here / "mark"
    (here / "marks.py").write_text(PLUGIN.format(mark=str(mark)))
    content = torch.load(last, weights_only=True)
    content["callbacks"]["trap"] = {"state": TRAPS[trap](str(mark))}
    torch.save(content, last, pickle_protocol=protocol)
    for name, door in doors.items():
        assert door() == (2 if name in READING else 0), name
        assert not mark.exists(), name
    # The trap is one: a reader that trusts the file falls into it.
    torch.load(last, weights_only=False)
    assert mark.exists()


@pytest.mark.slow
def test_a_plugin_that_a_checkpoint_names_is_run_by_no_door(run, last, doors, here, forgetful_registry):
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


# The law

UNSAFE = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "marshal.load", "marshal.loads",
    "shelve.open", "joblib.load", "dill.load", "dill.loads", "torch.jit.load", "runpy.run_path", "os.system",
    "torch.hub.load", "torch.serialization.add_safe_globals",
}  # fmt: skip
TOLD = ("torch.load", "load_from_checkpoint", "trainer.fit", "trainer.test", "trainer.validate")
"""Calls that must be told to read nothing but data."""
MAY = {
    "zoo/plugins.py": {"exec_module"},  # the one reader of plugins, which the user names
}


def unsafe_in(source):
    """The calls in a Python text that might run what a file holds."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield from (name for name in map(ast.unparse, node.bases) if name == "pickle.Unpickler")
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if name in UNSAFE or name.startswith("pickle.Unpickler"):
            yield name
        elif name.endswith("exec_module"):
            yield "exec_module"
        elif name in ("np.load", "numpy.load") and given.get("allow_pickle", "False") != "False":
            yield name
        elif name.endswith(TOLD) and given.get("weights_only") != "True":
            yield f"{name} without weights_only=True"


def test_the_zoo_reads_no_file_that_could_run():
    root = Path(zoo.__file__).parent
    files = sorted(root.rglob("*.py"))
    assert len(files) > 100
    for file in files:
        name = file.relative_to(root.parent).as_posix()
        assert set(unsafe_in(file.read_text(encoding="utf-8"))) <= MAY.get(name, set()), name


@pytest.mark.parametrize("source", [
    "torch.load(file)", "torch.load(file, weights_only=False)", "pickle.loads(raw)", "eval(text)",
    "exec(text)", "trainer.fit(task, ckpt_path=path)", "spec.loader.exec_module(module)",
    "np.load(file, allow_pickle=True)", "class Reader(pickle.Unpickler): pass",
])  # fmt: skip
def test_the_law_finds_what_it_forbids(source):
    assert list(unsafe_in(source))
