"""From a recipe to a run folder: its files, its messages, and the inputs that are refused."""

import json
import os
import re
import shlex

import pytest
import torch
import yaml
from run_files import logged

from zoo import cli
from zoo.errors import InputError
from zoo.recipe import read_recipe
from zoo.reports.fit import fit
from zoo.runs.folder import write_recipe
from zoo.schedules import lr_factor
from zoo.training.module import TaskModule

KINDS = ("max_index", "text", "masked")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_folder_holds_the_run(here, recipe, drawn, kind):
    recipe = recipe(kind, "logging=[csv, tensorboard]")
    folder = fit(recipe)
    assert folder.resolve() == here / "runs" / recipe.name
    expected = {
        ".lock", "recipe.yaml", "card.json", "checkpoints", "metrics.csv", "evaluation", "tensorboard",
        *(["tokenizer.json"] if kind != "max_index" else []),
    }  # fmt: skip
    assert {path.name for path in folder.iterdir()} == expected
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt"}
    assert {path.name for path in (folder / "evaluation").glob("[!.]*")} == {
        "measurements",
        "index.html",
        *(f"lengths.{ending}" for ending in ("json", "csv", "md", "png", "svg")),
    }
    assert [*folder.glob("tensorboard/events*")]

    assert read_recipe(folder / "recipe.yaml") == recipe
    assert yaml.safe_load((folder / "recipe.yaml").read_text()) == recipe.as_dict()

    card = json.loads((folder / "card.json").read_text())
    assert card["steps"] == 6 and card["finished"] is True and card["seed"] == recipe.seed
    assert card["tokens_seen"] == 6 * recipe.data.batch_size * recipe.data.sequence_length
    assert card["parameters"]["positional"] == 0 and card["parameters"]["other"] > 0
    assert card["fingerprint"].keys() == {"corpus", "tokenizer"} and card["fingerprint"]["corpus"]
    assert card["versions"]["torch"] == torch.__version__ and "git_commit" in card

    rows = {int(row["step"]): row for row in logged(folder)}
    assert [*rows] == [2, 4, 6]
    for row in rows.values():
        assert float(row["train/loss"]) > 0 and float(row["train/lr"]) > 0
        assert float(row["train/tokens_per_second"]) > 0 and float(row["train/peak_memory_mb"]) > 0
    assert float(rows[4]["val/loss"]) > 0 and not rows[2]["val/loss"]

    results = json.loads((folder / "evaluation" / "lengths.json").read_text())
    length = recipe.data.sequence_length
    assert [row["length"] for row in results] == [length, 2 * length, 4 * length]
    measure = "accuracy" if kind == "max_index" else "loss_nats"
    wanted = {"encoding", "checkpoint", "seed", "protocol", "train_length", "tokens", "tokens_per_second",
              "peak_memory_mb", measure}  # fmt: skip
    assert all(wanted <= row.keys() for row in results)


def test_positional_parameters_are_counted_apart(here, recipe, unmeasured):
    counts = {}
    for encoding in ("none", "learned"):
        folder = fit(recipe("max_index", f"model.encoding={encoding}", f"name={encoding}"))
        counts[encoding] = json.loads((folder / "card.json").read_text())["parameters"]
    assert counts["learned"]["positional"] == 8 * 16
    assert counts["learned"]["other"] == counts["none"]["other"] == counts["none"]["total"]


def test_the_checkpoint_interval_may_be_the_full_run(here, recipe, unmeasured):
    for every, accumulate in ((6, 1), (1000, 1), (1000, 2)):
        folder = fit(recipe("max_index", f"checkpoint.every_n_steps={every}",
                            f"trainer.accumulate_grad_batches={accumulate}"))  # fmt: skip
        assert {path.name for path in (folder / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt"}
        assert [int(row["step"]) for row in logged(folder) if row["val/loss"]] == [6]


@pytest.mark.parametrize("parts", [1, 4])
def test_validations_are_counted_in_steps(here, recipe, unmeasured, parts):
    sets = [f"trainer.accumulate_grad_batches={parts}", "trainer.val_check_interval=3"]
    folder = fit(recipe("text", *sets, "trainer.max_steps=7", "trainer.log_every_n_steps=1"))
    assert [int(row["step"]) for row in logged(folder) if row["val/loss"]] == [3, 6]


def test_a_run_without_validation_has_no_best_checkpoint(here, recipe, unmeasured):
    folder = fit(recipe("text", "trainer.limit_val_batches=0"))
    assert not (folder / "checkpoints" / "best.ckpt").exists()


@pytest.mark.launch
def test_the_console_is_quiet_and_its_last_command_works(zoo_command, capsys):
    assert zoo_command("prepare", "text.yaml").returncode == 0  # a training says that it tokenizes
    done = zoo_command("fit", "--recipe", "text.yaml")
    assert done.returncode == 0
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("training text: alibi in a decoder")
    assert lines[-2] == "done: text is in runs/text"
    assert any(line.split() == ["encoding", "16", "(trained)", "32", "64"] for line in lines)
    message, command = lines[-1].split(": ", 1)
    assert message == "look further"
    program, *launcher, verb, run, flag, lengths = shlex.split(command)
    assert (program, launcher, verb) == ("python", ["-m", "zoo"], "evaluate")
    # This small text can fill only some lengths of the command.
    assert cli.main([verb, run, flag, lengths]) == 0
    further = capsys.readouterr()
    assert further.err.splitlines() == ["sample: 12 documents: 10 train, 1 valid, 1 test, in its own splits"]
    assert "128" in further.out


def test_what_the_data_or_the_machine_cannot_do_is_reported_before_a_folder_is_made(
    here, recipe, monkeypatch
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for sets, message in (
        (["data.batch_size=100000000"], r"data\.batch_size: the training data holds"),
        (["trainer.accelerator=gpu", "trainer.devices=1"], "trainer: "),
    ):
        with pytest.raises(InputError, match=message):
            fit(recipe("max_index", *sets))
    assert not [*here.glob("runs/*")]


REFUSED_AT_ONCE = (
    ("logging=[csv, wandb]", "logging: wandb is not installed"),
    ("trainer.precision=transformer-engine", "trainer.precision: transformer_engine is not installed"),
    ("model.encoding={name: learned, table_length: 2}", "model.encoding: "),
    ("model.encoding={name: t5, num_buckets: 0}", "model.encoding"),
    ("model.encoding=[alibi, {name: rope, partial: 2.0}]", "model.encoding.1.partial: "),
)


def test_wrong_input_is_reported_before_the_data_is_read(here, recipe, monkeypatch):
    for package in ("wandb", "transformer_engine"):
        monkeypatch.setattr("importlib.util.find_spec", _without(package))
    monkeypatch.setattr("zoo.training.fit.open_data", lambda recipe: pytest.fail("the data was read"))
    for setting, message in REFUSED_AT_ONCE:
        with pytest.raises(InputError) as caught:
            fit(recipe("max_index", setting))
        (problem,) = caught.value.problems
        assert message in str(problem), setting
    (here / "file").write_text("")
    (here / "full").mkdir()
    (here / "full" / "thesis.txt").write_text("all of it")
    for out, message in (("file", "is a file"), ("file/run", "is a file"), ("full", "not empty")):
        with pytest.raises(InputError, match=message):
            fit(recipe(), out=here / out)
    assert (here / "full" / "thesis.txt").read_text() == "all of it" and not [*here.glob("runs/*")]


def _without(package):
    import importlib.util

    real = importlib.util.find_spec
    return lambda name, *more: None if name == package else real(name, *more)


def test_a_row_has_the_learning_rate_of_its_step(here, recipe, unmeasured):
    every = 2
    recipe = recipe("max_index", "optimizer.schedule=wsd", "optimizer.decay_fraction=0.5",
                    f"trainer.log_every_n_steps={every}", "trainer.accumulate_grad_batches=2")  # fmt: skip
    config = recipe.optimizer
    rows = {int(row["step"]): float(row["train/lr"]) for row in logged(fit(recipe))}
    # Step 1 is the first: warm-up in 1 and 2, then stable, and the last three fall.
    assert rows == {step: config.lr * lr_factor(config, step - 1, 6) for step in range(every, 7, every)}


def test_a_run_that_time_ended_is_not_done(here, recipe, capsys):
    folder = fit(recipe("max_index", "trainer.max_steps=100000", "trainer.max_time=00:00:00:01"))
    assert json.loads((folder / "card.json").read_text())["finished"] is False
    *_, message, _ = capsys.readouterr().out.splitlines()
    assert re.match(r"stopped at step \d+ of 100000; continue with --resume and a longer", message)


def test_a_failure_before_the_first_step_leaves_the_folder_free(here, recipe, monkeypatch, unmeasured):
    with monkeypatch.context() as broken:
        broken.setattr(TaskModule, "training_step", _raise)
        with pytest.raises(RuntimeError, match="no step"):
            fit(recipe(), out=here / "mine")
        assert not (here / "mine").exists()
        (here / "mine").mkdir()
        with pytest.raises(RuntimeError, match="no step"):
            fit(recipe(), out=here / "mine")
    assert not (here / "mine").exists()
    assert fit(recipe(), out=here / "mine") == here / "mine"


def _raise(*given):
    raise RuntimeError("no step")


PLUGIN = '''\
"""An encoding of the user's own."""

import torch

import zoo


@zoo.register("{name}")
class Mine(zoo.Encoding):
    """A learned shift of every token."""

    def __init__(self, size: zoo.Size):
        super().__init__(size)
        self.shift = torch.nn.Parameter(torch.zeros(size.d_model))

    def embed(self, x, pos):
        return x + self.shift
'''


def test_the_last_command_of_a_run_with_a_plugin_works(here, recipe, forgetful_registry, capsys):
    (here / "mine.py").write_text(PLUGIN.format(name="mine"))
    fit(recipe("max_index", "plugins=[mine.py]", "model.encoding=mine"))
    command = shlex.split(capsys.readouterr().out.splitlines()[-1].partition(": ")[2])
    assert cli.main(command[3:]) == 0
    forgetful_registry.encodings.entries.pop("mine", None)
    assert cli.main(command[3:-2]) == 2
    assert "--set plugins=" in capsys.readouterr().err


def test_shared_cores_are_reported_and_threads_do_not_spin(here, recipe, monkeypatch, capsys):
    monkeypatch.setenv("OMP_WAIT_POLICY", "")  # restored after the test
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    write_recipe(here, recipe())
    for load, policy in ((2.1, None), (4.0, "passive")):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert cli.main(["fit", "recipe.yaml"]) == 0
        assert ("load 4.0 on 2 cores" in capsys.readouterr().out) == bool(policy)
        assert os.environ.get("OMP_WAIT_POLICY") == policy
