"""The tasks as recipes name them: their options, their source, and messages for wrong ones."""

from importlib import import_module
from pathlib import Path

import pytest
import torch

import zoo.data.algorithmic
from zoo import cli, registry
from zoo.data import open_data
from zoo.data.source import GENERATED_SIZE
from zoo.errors import InputError
from zoo.recipe import resolve
from zoo.recipe.sections import usual_task
from zoo.tasks import build

TASKS = [
    name
    for name, about in registry.datasets.all().items()
    if not about.imports_torch and about.gives == "answers"
]
SHARED = {"__init__", "questions", "answers"}


def recipe(name, *sets, length=48):
    return resolve({
        "name": "tiny",
        "model": {"kind": "decoder", "encoding": "none", "d_model": 16, "num_layers": 1, "num_heads": 2},
        "data": {"name": name, "sequence_length": length, "batch_size": 8},
        "optimizer": {"lr": 1e-3},
        "trainer": {"max_steps": 1},
    }, sets)  # fmt: skip


def test_every_file_has_its_keys_and_all_keys_their_file():
    files = {file.stem for file in Path(zoo.data.algorithmic.__file__).parent.glob("*.py")}
    assert files - SHARED == set(TASKS)
    for name in TASKS:
        module = import_module(f"zoo.data.algorithmic.{name}")
        task = type(open_data(recipe(name)).dataset("train").questions)
        assert task.__module__ == module.__name__
        assert "arXiv:" in task.__doc__ and "Source:" in task.__doc__


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_recipe_opens_its_task(name, tmp_path):
    source = open_data(recipe(name))
    assert source.kind == "answers" and usual_task(name, "decoder") == "answering"
    assert source.tokenizer is source.units is None
    assert source.fingerprint["corpus"].startswith(name) and source.fingerprint["tokenizer"] == ""
    for option in (o.name for o in registry.datasets.describe(name).options):
        assert f"{option} {getattr(source.recipe.data, option)}" in source.fingerprint["corpus"]
    batch = next(iter(source.train_loader()))
    assert batch["tokens"].shape == batch["targets"].shape == (8, 48)
    assert {split: len(source.dataset(split)) for split in GENERATED_SIZE} == GENERATED_SIZE
    source.save_tokenizer(tmp_path)
    assert not list(tmp_path.iterdir())
    assert build(recipe(name)).hidden(batch["tokens"]).isfinite().all()
    assert source.vocab_size == source.dataset("train").questions.vocab_size > batch["tokens"].max()


def test_training_and_validation_are_of_all_sizes_and_a_length_is_of_one():
    source = open_data(recipe("copy"))

    def sizes(dataset):
        return {len(dataset.example(index)[1]) for index in range(1000)}

    assert sizes(source.dataset("train")) == set(range(1, 24))
    # The shortest strings are too few to hold some out.
    assert sizes(source.dataset("valid")) == set(range(4, 24))
    assert sizes(source.examples("test", 96, 1000)) == {47}


def test_the_seed_decides_what_is_trained_on_and_not_what_is_judged():
    one, two = (open_data(recipe("copy", f"seed={seed}")) for seed in (0, 1))

    def tokens(source, split):
        return source.dataset(split).batch(range(20))["tokens"]

    assert not torch.equal(tokens(one, "train"), tokens(two, "train"))
    for split in ("valid", "test"):
        assert torch.equal(tokens(one, split), tokens(two, split))
    assert torch.equal(one.examples("test", 64, 9)[3]["tokens"], two.examples("test", 64, 99)[3]["tokens"])
    assert one.fingerprint == two.fingerprint


def test_another_option_is_another_corpus():
    assert (
        open_data(recipe("copy")).fingerprint != open_data(recipe("copy", "data.num_symbols=9")).fingerprint
    )


@pytest.mark.parametrize("name", TASKS)
def test_lengths_at_which_nothing_fits_are_all_reported(name):
    task = open_data(recipe(name)).dataset("train").questions
    least = task.tokens(task.smallest)
    recipe(name, length=least)
    with pytest.raises(InputError) as caught:
        recipe(name, f"evaluate.lengths=[1, {least}, {least - 1}]", length=least - 1)
    problems = {problem.key: problem.message for problem in caught.value.problems}
    assert set(problems) == {"data.sequence_length", "evaluate.lengths.0", "evaluate.lengths.2"}
    assert all(f"{name}, which needs at least {least}" in message for message in problems.values())


def test_fewer_keys_than_pairs_are_reported_at_their_key():
    with pytest.raises(InputError, match=r"data\.num_keys: 7 keys are too few for 8 pairs"):
        recipe("associative_recall", "data.num_keys=7")


@pytest.mark.parametrize("key, value", [
    ("num_symbols", 1), ("num_symbols", 2.5), ("num_letters", 3),
])  # fmt: skip
def test_wrong_options_are_reported_at_their_key(key, value):
    with pytest.raises(InputError, match=rf"data\.{key}: "):
        recipe("copy", f"data.{key}={value}")


def test_an_encoder_has_no_answers_to_write():
    with pytest.raises(InputError, match=r"task: "):
        recipe("copy", "model.kind=encoder", "task=answering")


def test_lists_and_schema_show_every_task(capsys):
    for command in (["list", "tasks"], ["show", "--schema"]):
        assert cli.main(command) == 0
        shown = capsys.readouterr().out
        assert all(name in shown for name in [*TASKS, "answering"])
    for name in TASKS:
        assert cli.main(["list", "datasets", name]) == 0
        assert registry.datasets.describe(name).summary in capsys.readouterr().out
