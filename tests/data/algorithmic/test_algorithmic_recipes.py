"""The tasks as recipes name them: their options, their source, and messages for wrong ones."""

import pytest
from tiny_recipes import tiny

from zoo import registry
from zoo.data import open_data
from zoo.data.source import GENERATED_SIZE
from zoo.errors import InputError
from zoo.recipe.sections import usual_task
from zoo.tasks import build

TASKS = [
    name for name, about in registry.datasets.all().items() if about.cls.__module__ == "zoo.data.algorithmic"
]


def recipe(name, *sets, length=48):
    return tiny({"name": name, "sequence_length": length, "batch_size": 8}, *sets)


def test_a_recipe_opens_its_task(tmp_path):
    for name in TASKS:
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


def test_training_has_all_sizes_and_an_evaluated_length_has_one():
    source = open_data(recipe("copy"))

    def sizes(dataset):
        return {len(dataset.example(index)[1]) for index in range(1000)}

    assert sizes(source.dataset("train")) == set(range(1, 24))
    # The shortest strings are too few to hold some out.
    assert sizes(source.dataset("valid")) == set(range(4, 24))
    assert sizes(source.examples("test", 96, 1000)) == {47}


def test_lengths_at_which_nothing_fits_are_all_reported():
    for name in TASKS:
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
