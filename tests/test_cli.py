"""The command line: exit codes, one message for wrong input, arguments, signals and lists."""

import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import yaml

from zoo import cli
from zoo.errors import InputError, Problem

ROOT = Path(__file__).parents[1]

RECIPE = """\
# python -m zoo fit --recipe recipes/small.yaml
# A small decoder on generated text.
model: {kind: decoder, encoding: alibi, d_model: 64, num_layers: 2, num_heads: 4}
data: {name: sample, sequence_length: 128, batch_size: 8}
optimizer: {lr: 6e-4}
trainer: {max_steps: 200}
"""


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A working directory with one recipe that is right and one that is not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/small.yaml").write_text(RECIPE)
    (tmp_path / "recipes/wrong.yaml").write_text(RECIPE.replace("alibi", "alibbi").replace("sample", "smple"))
    return tmp_path


@pytest.fixture
def verbs(monkeypatch):
    """Stand-ins for the two verbs that need torch, with the arguments of each call."""
    calls = []
    training, evaluation = types.ModuleType("zoo.reports.fit"), types.ModuleType("zoo.reports.evaluate")
    training.fit = lambda *given, **named: calls.append((given, named))
    evaluation.evaluate = lambda *given, **named: calls.append((given, named))
    monkeypatch.setitem(sys.modules, "zoo.reports.fit", training)
    monkeypatch.setitem(sys.modules, "zoo.reports.evaluate", evaluation)
    return types.SimpleNamespace(calls=calls, training=training, evaluation=evaluation)


def test_the_output_of_show_reads_back_to_itself(workplace, capsys):
    assert cli.main(["show", "recipes/small.yaml", "--set", "model.encoding.slopes=geometric"]) == 0
    first = capsys.readouterr().out
    assert yaml.safe_load(first)["model"]["encoding"]["slopes"] == "geometric"
    (workplace / "again.yaml").write_text(first)
    assert cli.main(["show", "again.yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(first)


def test_show_leaves_out_the_vocabulary_that_a_given_tokenizer_decides(workplace, capsys):
    for tokenizer, there in (("null", True), ("characters", True), ("some/tokenizer.json", False)):
        assert cli.main(["show", "recipes/small.yaml", "--set", f"data.tokenizer={tokenizer}"]) == 0
        assert ("vocab_size" in yaml.safe_load(capsys.readouterr().out)["data"]) is there


def test_show_prints_the_recipe_of_a_run_and_imports_no_plugin(workplace, capsys):
    assert cli.main(["show", "recipes/small.yaml"]) == 0
    recipe = yaml.safe_load(capsys.readouterr().out) | {"plugins": ["gone.py"]}
    (workplace / "runs/one").mkdir(parents=True)
    (workplace / "runs/one/recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert cli.main(["show", "runs/one"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == recipe


WRONG_INPUT = (
    (["show", "recipes/wrong.yaml"], "recipes/wrong.yaml:3: model.encoding: no encoding 'alibbi'"),
    (["show"], "show what?"),
    (["show", "recipes", "--set", "seed=1"], "recipes is a run"),
    (["fit"], "give one RECIPE"),
    (["fit", "a.yaml", "--recipe", "b.yaml"], "not a.yaml and b.yaml"),
    (["fit", "recipes/small.yaml", "--resume", "outo"], "not recipes/small.yaml and outo"),
    (["fit", "nosuch.yaml"], "nosuch.yaml: no such recipe file"),
    (["evaluate", "runs/none"], "runs/none: no such run folder or checkpoint"),
    (["list", "encodngs", "x"], "did you mean 'encodings'?"),
    (["list", "bogus"], "lists are: encodings, datasets, tasks, protocols, optimizers, schedules, recipes, "),
    (["list", "runs"], "no runs here"),
    (["list", "tasks", "zzz"], "no task matches"),
)  # fmt: skip


def test_wrong_input_is_one_message_and_exit_2(workplace, verbs, capsys):
    for arguments, message in WRONG_INPUT:
        assert cli.main(arguments) == 2, arguments
        printed = capsys.readouterr()
        assert message in printed.err and "Traceback" not in printed.err, printed.err
        assert printed.out == "" and not verbs.calls


def test_wrong_arguments_are_exit_2_with_the_nearest_word(workplace, verbs, capsys):
    for command, hint in {
        "evaluate": "", "lst": "did you mean 'list'?", "xyzzy": "there are: fit, prepare, evaluate, ",
        "evaluate x --lengths 64,x": "--lengths", "evaluate x --lengths 0": "--lengths",
        "evaluate x --protocol ,": "--protocol", "fit --rec recipes/small.yaml": "--rec",
        "generate run --max-tokens 20": "--max-tokens 20; did you mean '--max-new-tokens'?",
    }.items():  # fmt: skip
        with pytest.raises(SystemExit) as caught:
            cli.main(command.split())
        assert caught.value.code == 2 and not verbs.calls, command
        assert hint in capsys.readouterr().err, command


def test_fit_hands_on_what_it_is_given(workplace, verbs):
    command = "fit --recipe recipes/small.yaml --set seed=3 --set data.batch_size=4 --out o --resume"
    assert cli.main(command.split()) == 0
    (recipe,), named = verbs.calls.pop()
    assert recipe.seed == 3 and recipe.data.batch_size == 4 and recipe.name == "small"
    assert named == {"out": Path("o"), "resume": True}
    for words, resume in (
        ("recipes/small.yaml", False), ("--set seed=1 recipes/small.yaml", False),
        ("recipes/small.yaml --resume", True), ("--resume recipes/small.yaml", True),
        ("--recipe recipes/small.yaml --resume auto", "auto"), ("--resume auto recipes/small.yaml", "auto"),
    ):  # fmt: skip
        assert cli.main(["fit", *words.split()]) == 0
        (recipe,), named = verbs.calls.pop()
        assert recipe.name == "small" and named["resume"] == resume, words


def test_interrupted_is_130_and_one_line(workplace, verbs, capsys):
    def interrupted(*given, **named):
        raise KeyboardInterrupt("stopped at step 7")

    verbs.training.fit = interrupted
    assert cli.main(["fit", "--recipe", "recipes/small.yaml"]) == 130
    assert capsys.readouterr().err == "stopped at step 7\n"


@pytest.mark.parametrize("verb, number", [("fit", signal.SIGTERM), ("evaluate", signal.SIGINT)])
def test_sigterm_is_ctrl_c_and_handlers_are_restored(workplace, verbs, capsys, verb, number):
    def interrupted(*given, **named):
        os.kill(os.getpid(), number)
        time.sleep(5)

    verbs.training.fit = verbs.evaluation.evaluate = interrupted
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    (workplace / "run").mkdir()
    arguments = {"fit": ["fit", "--recipe", "recipes/small.yaml"], "evaluate": ["evaluate", "run"]}
    assert cli.main(arguments[verb]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_problems_of_a_run_get_the_location_of_their_key(workplace, verbs, capsys):
    def refuses(*given, **named):
        raise InputError([
            Problem("too steep", key="model.encoding.slopes"),
            Problem("too many", key="data.batch_size"),
            Problem("not here", key="data.root", where="data/"),
            Problem("no disk"),
        ])  # fmt: skip

    verbs.training.fit = refuses
    command = "fit --recipe recipes/small.yaml --set data.batch_size=4"
    assert cli.main(command.split()) == 2
    assert capsys.readouterr().err.splitlines() == [
        "recipes/small.yaml:3: model.encoding.slopes: too steep",
        "--set data.batch_size=4: data.batch_size: too many",
        "data/: data.root: not here",
        "no disk",
    ]


def test_an_unexpected_error_keeps_its_traceback(workplace, verbs):
    def broken(*given, **named):
        raise RuntimeError("a bug")

    verbs.training.fit = broken
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["fit", "--recipe", "recipes/small.yaml"])


@pytest.mark.launch
def test_a_reader_that_leaves_early_is_no_error(workplace):
    done = subprocess.run(
        f"{sys.executable} -m zoo show --schema | head -1; echo ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.split() == ["{", "0"]


# Lists


def test_recipes_are_listed_and_a_broken_one_too(workplace, capsys):
    assert cli.main(["list", "recipes"]) == 0
    _, small, wrong = capsys.readouterr().out.splitlines()
    assert small.split()[:6] == ["recipes/small.yaml", "alibi", "decoder", "sample", "128", "200"]
    assert wrong.split()[:3] == ["recipes/wrong.yaml", "broken", "recipes/wrong.yaml:3:"]


def test_runs_are_listed_by_their_cards(workplace, capsys):
    card = {"encoding": "alibi", "task": "language_modelling", "data": "sample", "seed": 1, "steps": 7,
            "tokens_seen": 70, "fingerprint": {}, "parameters": {}, "finished": True}  # fmt: skip
    for name, text in {"one": json.dumps(card), "two": "{", "three": "[]"}.items():
        (workplace / "runs" / name).mkdir(parents=True)
        (workplace / "runs" / name / "card.json").write_text(text)
    assert cli.main(["list", "runs"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert lines["runs/one"].split()[1:] == ["alibi", "language_modelling", "sample", "-", "1", "7", "yes"]
    assert "cannot be read: it is not JSON" in lines["runs/two"]
    assert "not the card of a run" in lines["runs/three"]
    assert cli.main(["list", "runs", "o*"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
