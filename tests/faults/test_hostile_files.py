"""Bombs, pipes and nonsense in place of a recipe or of a file of a run folder: one message each, at once."""

import ast
import json
import os
import sys
import time
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path

import pytest
from measured import store_rows
from test_fuzz_recipes import at_most

from zoo import cli
from zoo.errors import MOST_SHOWN, InputError, Problem
from zoo.evaluation.store import read_measurements
from zoo.recipe import dump, resolve
from zoo.reports.compared_run import read_runs
from zoo.sweep.matrix import Run

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 2
MEASURED = "evaluation/measurements/nonoverlapping.json"
MOST_MEMORY = 300  # MiB by which the process may grow; before bounds a bomb took all there was
MANY = 10**6

LEVELS = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
LEVELS += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
MERGES = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 30)]
BOMBS = {
    "billion laughs": "\n".join(LEVELS),
    "laughs as keys": "\n".join(MERGES),
    "recursive alias": "a: &a [*a, *a]\n",
    "recursive key": "&a {*a : 1}\n",
    "deep flow": "a: " + "[" * 500_000,
    "deep mappings": "{a: " * 200_000,
    "deep block": "".join(f"{' ' * n}a:\n" for n in range(1000)),
    "deep list": "- " * 400_000,
    "2 MiB": "# " + "x" * (2 << 20),
    "1 MiB of text": "a: " + "x " * (500 << 10),
    "a million keys": "".join(f"k{n}: 1\n" for n in range(MANY)),
    "many keys": "".join(f"k{n}: 1\n" for n in range(4990)),
    "many encodings": "model: {encoding: [" + ", ".join(f"e{n}" for n in range(4900)) + "]}",
    "many documents": "---\na: 1\n" * 50_000,
    "huge number": "seed: " + "9" * 100_000,
    "huge hexadecimal": "seed: 0x" + "f" * 100_000,
    "huge exponent": "seed: 1e" + "9" * 100_000,
    "a tag that would run": "seed: !!python/object/apply:os.system ['touch ran']",
    "a tag on a mapping": "model: !!python/object/apply:os.system {args: ['touch ran']}",
}
NOT_JSON = {
    "nothing": b"",
    "half": b'{"steps": 3, "task"',
    "a number": b"3",
    "null": b"null",
    "deep": b"[" * 500_000,
    "deep and closed": b"[" * 60 + b"]" * 60,
    "deep mappings": b'{"a":' * 100_000,
    "larger than 16 MiB": b"[" + b"1," * (9 << 20) + b"1]",
    "huge number": b'[{"step": ' + b"9" * 5000 + b"}]",
    "not 64 bits": b'{"steps": ' + b"9" * 20 + b"}",
    "latin-1": b'{"task": "\xe9"}',
    "UTF-16": '{"task": "x"}'.encode("utf-16"),
    "half a character": b'{"task": "\\ud800"}',
    "an escape": b'[{"encoding": "\\u001b[2J"}]',
    "raw control character": b'{"task": "\x1b[2J"}',
    "NUL": b"\x00" * 1000,
}


def sweep_state(folder, recipe):
    """Whether a sweep takes a run for finished."""
    run = Run("a", "alibi", 0, recipe, Path("a.yaml"), (), folder)
    run.check_folder()
    return run.is_finished()


@pytest.fixture
def recipe():
    return resolve({
        "name": "a", "model": {
            "kind": "decoder", "encoding": "alibi", "d_model": 16, "num_layers": 1, "num_heads": 2,
        },
        "data": {"name": "sample", "sequence_length": 16, "batch_size": 4, "vocab_size": 300},
        "optimizer": {"lr": 1e-3}, "trainer": {"max_steps": 6},
    })  # fmt: skip


@pytest.fixture
def run(here, recipe):
    """The folder of a run that was trained and evaluated, as far as its files say."""
    row = {
        "run": "a", "encoding": "alibi", "checkpoint": "checkpoints/last.ckpt", "step": 6, "seed": 0,
        "protocol": "nonoverlapping", "parameters": {}, "length": 16, "train_length": 16, "documents": 7,
        "tokens": 256, "loss_nats": 3.0, "bits_per_byte": 1.5, "bits_per_byte_low": 1.4,
        "bits_per_byte_high": 1.6,
        "targets": "abc",
    }  # fmt: skip
    card = {
        "name": "a", "encoding": "alibi", "task": "language_modelling", "steps": 6, "tokens_seen": 384,
        "fingerprint": {"corpus": "c"}, "parameters": {"positional": 0, "other": 1, "total": 1},
        "versions": {},
    }  # fmt: skip
    folder = Path("runs/a")
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "last.ckpt").write_text("")
    (folder / "recipe.yaml").write_text(dump(recipe))
    (folder / "card.json").write_text(json.dumps(card))
    store_rows(folder, [row, row | {"length": 32}])
    next((folder / "evaluation" / "measurements").iterdir()).rename(folder / MEASURED)
    return folder


@contextmanager
def soon():
    """Fails what hangs, or takes much of the processor's time, which other work does not add to."""
    began = time.process_time()
    with at_most(60):
        yield
    assert time.process_time() - began < MOST_SECONDS


def memory_mb():
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def reported(call, *names):
    """What an InputError of a call says: soon, without much memory, in few words, and with these names."""
    before = memory_mb()
    with soon(), pytest.raises(InputError) as caught:
        call()
    text = str(caught.value)
    assert memory_mb() - before < MOST_MEMORY
    assert len(text.splitlines()) <= MOST_SHOWN + 1 and len(text) < 40_000
    assert all(one.isprintable() or one == "\n" for one in text)
    assert all(name in text for name in names), text
    return text


def verb(*arguments):
    """The message of a command that ends with wrong input, as `told` takes it."""

    def call():
        with redirect_stderr(StringIO()) as errors:
            code = cli.main([str(argument) for argument in arguments])
        assert code == 2
        raise InputError(errors.getvalue())

    return call


def test_the_run_itself_is_fine(run, recipe):
    assert len(read_runs([run])[0].rows) == 2
    assert len(read_measurements(run)[0].rows) == 2
    sweep_state(run, recipe)


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_instead_of_a_recipe(run, recipe, bomb):
    Path("bomb.yaml").write_text(BOMBS[bomb])
    Path("child.yaml").write_text("base: bomb.yaml\n")
    for call in (
        verb("fit", "--recipe", "bomb.yaml"),
        verb("show", "bomb.yaml"),
        verb("show", "child.yaml"),
        verb("sweep", "bomb.yaml", "--encodings", "alibi"),
        # No command line is longer.
        verb("show", run / "recipe.yaml", "--set", f"model.encoding={BOMBS[bomb][:100_000]}"),
    ):
        reported(call)
    Path("recipes").mkdir()
    Path("bomb.yaml").rename("recipes/bomb.yaml")
    with soon():
        assert cli.main(["list", "recipes"]) == 0  # it is listed as broken, beside the others
    (run / "recipe.yaml").write_text(BOMBS[bomb])
    reported(lambda: read_runs([run]), "runs/a/recipe.yaml")
    reported(lambda: sweep_state(run, recipe), "runs/a/recipe.yaml")
    assert not Path("ran").exists()


@pytest.mark.parametrize("content", NOT_JSON)
def test_nonsense_instead_of_the_files_of_a_run(run, recipe, content, capsys):
    for name, readers in READERS.items():
        good = (run / name).read_bytes() if (run / name).exists() else None
        (run / name).write_bytes(NOT_JSON[content])
        for reader in readers:
            reported(lambda reader=reader: reader(run, recipe), f"runs/a/{name}")
        with soon():
            assert cli.main(["list", "runs"]) == 0
        shown = capsys.readouterr().out
        assert len(shown.splitlines()) == 2 and "\x1b" not in shown
        (run / name).unlink() if good is None else (run / name).write_bytes(good)


@pytest.mark.parametrize("poison, expected", [
    ('"\\u001b[2J"', "U+001B"), ('"\\ud800"', "U+D800"), ('{"\\u0085": 1}', "U+0085"), ("9" * 20,
    "20 digits"),
    ("[" * 40 + "]" * 40, "nested too deeply"),
])  # fmt: skip
def test_one_value_that_is_poison(run, recipe, poison, expected):
    for name in ("card.json", MEASURED):
        good = (run / name).read_text()
        (run / name).write_text(good.replace('"alibi"', poison, 1))
        reported(lambda: read_runs([run]), f"runs/a/{name}", expected)
        reported(lambda: sweep_state(run, recipe), f"runs/a/{name}", expected)
        (run / name).write_text(good)


READERS = {
    "card.json": [lambda run, recipe: read_runs([run]), sweep_state],
    MEASURED: [lambda run, recipe: read_runs([run]), sweep_state],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nothing", "link to itself", "link to a device"])
def test_another_kind_of_file_is_not_waited_for(run, recipe, kind):
    files = {"recipe.yaml": [lambda run, recipe: read_runs([run]), sweep_state], **READERS}
    files["metrics.csv"] = [lambda run, recipe: read_runs([run])] if "nothing" not in kind else []
    for name, readers in files.items():
        file = run / name
        good = file.read_bytes() if file.exists() else None
        file.unlink(missing_ok=True)
        match kind:
            case "folder":
                file.mkdir()
            case "pipe":
                os.mkfifo(file)
            case _:
                targets = {"nothing": "nowhere", "itself": file.name, "device": "/dev/zero"}
                file.symlink_to(targets[kind.split()[-1]])
        for reader in readers if not (kind == "link to itself" and name == "metrics.csv") else []:
            reported(lambda reader=reader: reader(run, recipe), "runs/a")
        file.rmdir() if kind == "folder" else file.unlink()
        if good is not None:
            file.write_bytes(good)


def test_all_that_is_wrong_with_a_run_is_reported_at_once(run):
    (run / "recipe.yaml").write_text("a: &a [*a]\n")
    (run / "card.json").write_text('{"steps": [')
    (run / MEASURED).write_text('[{"length": 1e999}]')
    text = reported(
        lambda: read_runs([run]), "recipe.yaml:1: ", "card.json:1: ", f"{MEASURED}: not a measurement"
    )
    assert len(text.splitlines()) == 3


def test_a_resolved_recipe_from_elsewhere_is_plain_data_within_bounds(recipe):
    endless = []
    endless.append(endless)
    deep = "x"
    for _ in range(10_000):
        deep = [deep]
    for value, expected in (
        (endless, "nested too deeply"), (deep, "nested too deeply"), (list(range(30_000)), "too many values"),
        ({3: 1}, "a key must be text"), (object(), "plain data"), (Path("x"), "plain data"), ("\x1b",
        "U+001B"),
        (1 << 5000, "5001 bits"), ("\ud800", "U+D800"), ({"\x00": 1}, "U+0000"),
    ):  # fmt: skip
        mapping = recipe.as_dict()
        mapping["model"]["encoding"] = value
        reported(lambda mapping=mapping: resolve(mapping), expected)


def test_a_message_does_not_play_with_the_terminal():
    problem = Problem("\x1b[2J\u202eevil\nsecond", key="a\rb" * 100, where="x\ny" * 1000)
    text = str(problem)
    assert "\\x1b[2J\\u202eevil\nsecond" in text and text.count("\n") == 1 and "\r" not in text
    assert len(text) < 1500


def test_only_the_bounded_readers_parse_what_others_wrote():
    """A law: `yaml.load` and its kin nowhere; in the package JSON files by `zoo.files`."""
    wrong = []
    for file in sorted([*(ROOT / "zoo").rglob("*.py"), *(ROOT / "scripts").glob("*.py")]):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            called = ast.unparse(node.func)
            loads_yaml = called.startswith("yaml.") and "load" in called
            of_a_file = called == "json.loads" and "read" in ast.unparse(node.args[0])
            name = str(file.relative_to(ROOT))
            of_a_file = (of_a_file or called == "json.load") and name.startswith("zoo/")
            if loads_yaml or (of_a_file and name not in EXCEPTED):
                wrong.append(f"{name}:{node.lineno}: {called}")
    assert not wrong, wrong


EXCEPTED = {
    "zoo/data/text/cache.py",  # checksums
    "zoo/data/text/checksums.py",
    "zoo/data/text/tokens.py",
}
