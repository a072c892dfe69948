"""Every command in README.md and docs/ runs, in the order of the pages."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from killed_runs import Forks
from ports import free_port

from zoo import registry
from zoo.cli import main

ROOT = Path(__file__).parent.parent
ORDER = (
    "quickstart", "recipes", "tasks", "evaluation", "visualize", "add-your-own", "pretrained", "distributed",
)  # fmt: skip
FILES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ORDER)]
FILES += sorted({*(ROOT / "docs").rglob("*.md")} - {*FILES})
PAGES = {file: file.read_text(encoding="utf-8") for file in FILES}
README = PAGES[ROOT / "README.md"]
TEXT = "\n".join(PAGES.values())
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

# What makes a training small enough for a test and changes nothing else.
SMALL = [
    "trainer.max_steps=4", "trainer.accelerator=cpu", "trainer.limit_val_batches=4",
    "checkpoint.every_n_steps=2", "data.batch_size=4", "data.sequence_length=16", "model.d_model=16",
    "model.num_layers=1", "evaluate.lengths=[16,32]",
]  # fmt: skip
SMALL_TEXT = ["data.vocab_size=300", "evaluate.max_tokens=256"]
SMALL_SAMPLE = ["data.documents=4", "data.words=120"]
SAMPLE = {key.split("=")[0]: key for key in SMALL_SAMPLE}


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language ("" for none), in the order of the pages."""
    parts = re.split(r"^```(.*)\n", TEXT, flags=re.MULTILINE)
    # Text, language, block, "", text, language, block, "" ...
    return [block for fence, block in zip(parts[1::4], parts[2::4], strict=True) if fence == language]


def block_with(command: str) -> str:
    """The one block of shell lines that holds a command."""
    (block,) = (one for one in blocks("sh") if re.search(rf"^{command} ", one, re.MULTILINE))
    return block


def commands() -> list[str]:
    """Lines of bash blocks, each once."""
    return [*dict.fromkeys(line for block in blocks("bash") for line in block.splitlines() if line.strip())]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory of a reader: recipes, a WikiText-2 of a few lines, novels, a plugin."""
    home = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "recipes", home / "recipes")
    article = "".join(
        f" The {word} of the river ran past the {word} house . \n" for word in ["old", "mill", "new", "gate"]
    )
    for split in ("train", "valid", "test"):
        file = home / "data" / "wikitext-2" / f"wiki.{split}.tokens"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f" \n = A river = \n \n{article * 12}" * 3, encoding="utf-8")
    for name in ("one", "two", "three"):
        novel = home / "data" / "novels" / f"{name}.txt"
        novel.parent.mkdir(exist_ok=True)
        novel.write_text(f"{name}: " + article * 30, encoding="utf-8")
    for plugin in (block for block in blocks("python") if block.startswith("# my_")):
        (home / plugin.split()[1]).write_text(plugin, encoding="utf-8")
    return home


def small(arguments: list[str]) -> list[str]:
    """A command with what makes it small; verbs that train nothing are as they are."""
    if arguments[0] == "check":  # tests/contract/test_check.py tries all laws on these plugins
        return [*arguments, "--quick"]
    if arguments[0] == "import":
        return [SAMPLE.get(argument.split("=")[0], argument) for argument in arguments]
    if arguments[0] == "evaluate":
        arguments = [*arguments, "--set", "evaluate.max_tokens=256"]
        arguments = [re.sub(r"^evaluate\.samples=.*", "evaluate.samples=4", one) for one in arguments]
        return [re.sub(r"^(128,)?256,512,1024$", "16,32", argument) for argument in arguments]
    if arguments[0] not in ("fit", "sweep") or "--help" in arguments:
        return arguments
    recipe = next(argument for argument in arguments[1:] if argument != "--recipe")
    own = [argument.split("=")[0] for argument in arguments]
    sets = (
        SMALL
        + (SMALL_TEXT if re.search("wikitext|sample", recipe) else ["evaluate.samples=16"])
        + (SMALL_SAMPLE if "sample" in recipe else [])
    )
    if re.search("gemma3|modernbert", recipe):  # their layers take turns by three
        sets[sets.index("model.num_layers=1")] = "model.num_layers=3"
    fewer = {"0,1,2": "0", "1,2,3": "1", "optimizer.lr=3e-4,1e-3,3e-3": "optimizer.lr=3e-4,1e-3"}
    arguments = [fewer.get(argument, argument) for argument in arguments]
    arguments = [re.sub(r"(every_n_steps[:=] ?)100", r"\g<1>2", argument) for argument in arguments]
    arguments = ["data.sequence_length=32" if "sequence_length=512" in one else one for one in arguments]
    return arguments + [part for key in sets if key.split("=")[0] not in own for part in ("--set", key)]


def test_ci_runs_the_two_installing_commands():
    train, test = commands()[:2]
    assert "zoo fit" in train and "pytest" in test
    # CI takes them from this file by these patterns; each must find the command and nothing before it.
    for command, pattern in ((train, "pip install.*zoo fit"), (test, "pip install.*pytest")):
        assert f"grep -m1 '{pattern}' README.md" in CI
        assert next(line for line in README.splitlines() if re.search(pattern, line)) == command
    # CI runs both in one environment: they install the same, the second more of it.
    assert train.partition(" && .venv/bin/python -m zoo")[0] == (
        test.partition(" && .venv/bin/pytest")[0].replace("'.[dev]'", ".")
    )


class RunHere:
    """A run of a sweep, in this process; tests/sweep/test_sweep.py has processes of their own."""

    def __init__(self, command: list[str], **how: object):
        self.returncode = main(command[3:])

    def poll(self) -> int:
        return self.returncode


def test_every_other_command_runs(
    home: Path,
    forks: Forks,
    zoo_command: Callable,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
):
    monkeypatch.chdir(home)
    monkeypatch.delenv("ZOO_DATA", raising=False)
    monkeypatch.setattr(
        "zoo.sweep.processes.subprocess", SimpleNamespace(Popen=RunHere, DEVNULL=None, STDOUT=None)
    )
    ran, launched = 0, False
    trained = commands()[0].split(" && ")[-1].partition("-m ")[2]  # without the installation
    for command in [trained, *commands()[2:]]:
        verb, *arguments = shlex.split(command)
        assert verb == "zoo", command
        arguments = small(arguments)
        if "trainer.devices=2" in command and not launched:
            launched = True
            done = zoo_command(*arguments)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
        elif "devices=2" in command or "--devices 2" in command:
            # Already two processes, as the first `fit` has the command start them.
            forks.run(arguments, home, f"command{ran}", world_size=2)
        else:
            try:
                code = main(arguments)
            except SystemExit as stop:  # argparse leaves so after --help
                code = stop.code or 0
            assert code == 0, f"{command}\n{''.join(capsys.readouterr())}"
        ran += 1
    assert ran == len(commands()) - 1 > 10
    for folder in ("comparison", "runs/copy_comparison"):
        assert (home / folder / "index.html").is_file(), folder
    for run in ("alibi_sample", "rope_wikitext2", "novels", "two", "root_sample"):
        assert (home / "runs" / run / "evaluation" / "lengths.json").is_file(), run


def small_line(line: str) -> tuple[list[str], list[str]]:
    """The launcher in a line of a shell, and the arguments of `zoo`, made small."""
    launcher, zoo, fit = line.partition("-m zoo ")
    return shlex.split(launcher + zoo), small(shlex.split(fit))


@pytest.mark.slow
def test_the_launchers_shown_run(home: Path, forks: Forks):
    one, *two = (small_line(line) for line in block_with("torchrun").splitlines())
    # tests/faults/test_signals.py starts such a one.
    assert one[0] == shlex.split("torchrun --standalone --nproc_per_node 2 -m zoo")
    assert forks.run(one[1], home, "launched", world_size=2).count("done: ") == 1
    assert [f"--node_rank {rank} " in shlex.join(node) for rank, (node, _) in enumerate(two)] == [True, True]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    own = {"$HOST": ["127.0.0.1", "--master_port", str(free_port())]}
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run",
             *(part for word in node[1:] for part in own.get(word, [word])), *fit],
            cwd=home, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for node, fit in two
    ]  # fmt: skip
    message = "".join(node.communicate(timeout=240)[0] for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0], message
    assert message.count("done: ") == 1
    for run in ("alibi_wikitext2", "alibi_wikitext2-2"):
        assert (home / "runs" / run / "evaluation" / "lengths.json").is_file(), run


@pytest.mark.slow
def test_the_job_shown_runs(home: Path, forks: Forks):
    """In two tasks on one node, with the variables that srun sets."""
    lines = block_with("srun --kill-on-bad-exit=1").splitlines()
    # Without it, processes that wait on a GPU for one that has failed wait for ever.
    launcher, arguments = small_line(lines[2])
    assert launcher == shlex.split("srun --kill-on-bad-exit=1 python -m zoo") and len(lines) == 3
    assert "--ntasks-per-node=2" in lines[1] and "--signal=SIGUSR1@" in lines[1] and "--requeue" in lines[1]
    slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "job.sh", "SLURM_JOB_NODELIST": "localhost"}
    for verb in ("training", "continuing"):  # a job that runs again continues
        message = forks.run(arguments, home, verb, world_size=2, **slurm)
        assert message.count("done: ") == message.count(f"{verb} alibi_wikitext2") == 1, message


def test_every_test_shown_exists_and_is_slow():
    shown = re.findall(r"`(?:ZOO_KILL_ALL=1 )?pytest -m slow ([^`]+)`", TEXT)
    assert len(shown) >= 8
    for path in " ".join(shown).split():
        files = [ROOT / path] if path.endswith(".py") else [*(ROOT / path).glob("test_*.py")]
        assert files and any("mark.slow" in file.read_text(encoding="utf-8") for file in files), path
    assert "pytest -m '(slow or launch) and not gpu'" in CI


def test_the_python_shown_runs(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(home)
    if not (home / "runs" / "rope_maxindex").is_dir():  # the test of all commands was deselected
        assert main(small(["fit", "--recipe", "recipes/rope_maxindex.yaml"])) == 0
    shown = next(block for block in blocks("python") if "zoo.load" in block)
    names: dict = {}
    exec(compile(shown, "README.md", "exec"), names)
    assert names["model"].num_layers == 4


@pytest.mark.slow
def test_the_notebook_shown_runs(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(home)
    shown = next(block for block in blocks("python") if "zoo.fit" in block)
    assert shown.count('["seed=1"]') == 1
    names: dict = {}
    sets = [*SMALL, "evaluate.samples=16", "seed=1"]
    exec(compile(shown.replace('["seed=1"]', repr(sets)), "README.md", "exec"), names)
    assert names["weights"].shape == (1, 1, 4, 8, 8) and names["bias"].shape == (4, 512, 512)


def test_the_recipe_shown_is_one(home: Path):
    from zoo.recipe import read_recipe

    shown = next(block for block in blocks("yaml") if "base:" in block)
    assert yaml.safe_load(shown)
    file = home / "recipes" / "shown.yaml"
    file.write_text(shown, encoding="utf-8")
    assert read_recipe(file).model.encoding["name"] == "rope"


def test_the_encodings_shown_can_be_built(model_of, tokens):
    shown = next(block for block in blocks("yaml") if block.startswith("encoding:"))
    for line in shown.splitlines():
        model = model_of(yaml.safe_load(line)["encoding"], num_layers=4)
        assert model(tokens(1, 8)).isfinite().all(), line


def test_every_encoding_is_named():
    for name in registry.encodings.names():
        if registry.encodings.describe(name).builtin:
            assert f"`{name}`" in README, name


def test_every_folder_on_the_map_exists():
    tree = next(block for block in blocks("") if block.startswith("zoo/"))
    parts = re.findall(r"^ {2}(\w+(?:/|\.py))", tree, re.MULTILINE)
    assert len(parts) >= 8
    for part in parts:
        assert (ROOT / "zoo" / part).exists(), part
    for folder in ("recipes", "docs", "scripts", "tests"):
        assert f"\n{folder}/" in tree and (ROOT / folder).is_dir()


READ_TOO = [ROOT / "recipes" / "README.md", ROOT / "data" / "README.md"]


def test_plugins_on_several_pages_are_equal():
    plugins = [block for block in blocks("python") if block.startswith("# my_")]
    assert len(plugins) == 4 and len({*plugins}) == 3


def test_every_picture_is_small_and_shown():
    shown = TEXT + "".join(page.read_text(encoding="utf-8") for page in READ_TOO)
    files = sorted((ROOT / "docs" / "pictures").iterdir())
    assert files
    for file in files:
        assert file.stat().st_size <= 200_000 and f"pictures/{file.name}" in shown, file
    script = (ROOT / "scripts" / "draw_pictures.py").read_text(encoding="utf-8")
    drawn = re.findall(r'^    "(\w+)": \[', script, re.MULTILINE)
    assert sorted(f"{name}.png" for name in drawn) == [file.name for file in files]
