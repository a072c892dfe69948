"""No scored prompt is trained on, or the result reports it."""

import itertools
import sys

import numpy as np
import pytest
from tiny_recipes import tiny

from zoo import registry
from zoo.data import open_data
from zoo.data.draws import is_held_out
from zoo.data.questions.answers import Answers
from zoo.evaluation.measure import validation_seen_in_training

ALGORITHMIC = [
    name
    for name, about in registry.datasets.all().items()
    if about.gives == "answers" and about.source == "generated"
]
SIDES = "0110000100010000001000001100000100000101000001000000101000001110"


def recipe(name, length, *sets):
    data = {"name": name, "sequence_length": length, "batch_size": 8}
    return tiny(data, *sets, kind="encoder" if name == "max_index" else "decoder")


def prompts(dataset, indices):
    """The prompts of some examples; of max-index, whose prompt is all there is, the sequences."""
    if isinstance(dataset, Answers):
        return [tuple(dataset.example(index)[0]) for index in indices]
    return list(map(tuple, dataset.batch(indices)["tokens"].tolist()))


# Lengths at which thousands of training examples contain nearly every prompt.
FEW_PROMPTS = {
    "copy": (12, ()),
    "reverse": (12, ()),
    "sort": (12, ()),
    "addition": (9, ()),
    "parity": (13, ()),
    "majority": (14, ()),
    "flip_flop": (18, ()),
    "selective_copy": (68, ("data.num_data=1",)),
    "associative_recall": (8, ("data.num_pairs=1",)),
    "dyck": (20, ()),
    "max_index": (3, ()),
}


@pytest.mark.parametrize("name", [*ALGORITHMIC, "max_index"])
def test_no_seed_trains_on_a_scored_prompt_where_prompts_are_few(name):
    length, sets = FEW_PROMPTS[name]
    sources = [open_data(recipe(name, length, f"seed={seed}", *sets)) for seed in (0, 1)]
    trained = {prompt for source in sources for prompt in prompts(source.dataset("train"), range(2000))}
    for scored in (sources[0].dataset("valid"), sources[0].examples("test", length, 500)):
        assert not trained & set(prompts(scored, range(500)))
        assert scored.seen_in_training(length) == 0


def test_sizes_with_too_few_prompts_are_trained_on_in_full_and_count_as_seen():
    source = open_data(recipe("parity", 10))
    trained = set(prompts(source.dataset("train"), range(4000)))
    assert {tuple(bits) for size in range(1, 6) for bits in itertools.product((3, 4), repeat=size)} <= {
        prompt[1:-1] for prompt in trained
    }
    assert source.dataset("valid").seen_in_training(10) == 1
    assert source.examples("test", 10, 100).seen_in_training(10) == 1
    # A longer one was not trained on, and prompts of 20 tokens are held out.
    assert source.examples("test", 11, 100).seen_in_training(10) == 0
    assert source.examples("test", 20, 100).seen_in_training(20) == 0


def test_a_task_of_one_prompt_a_size_holds_none_out():
    sets = ("data.num_kinds=1", "data.max_depth=1")
    source = open_data(recipe("dyck", 20, *sets))
    assert source.dataset("train").questions.held_out_from == sys.maxsize
    assert source.examples("test", 20, 9).seen_in_training(20) == 1
    assert source.examples("test", 40, 9).seen_in_training(20) == 0


def test_a_validation_that_holds_nothing_out_is_reported_before_training():
    for length, sets, message in (
        (16, (), []),
        (
            8,
            (),
            ["validation: training may have seen 100% of it: too few different examples to hold any out"],
        ),
        (8, ("trainer.limit_val_batches=0",), []),
    ):
        source = open_data(recipe("parity", length, *sets))
        task = registry.tasks.load("answering")(source.recipe.as_dict(), source.vocab_size)
        assert validation_seen_in_training(task, source) == message


def test_a_quarter_of_the_prompts_is_held_out_in_every_group():
    """Neither parity, beginning, end nor length of a prompt predicts its side."""
    for size in (11, 12, 13):
        bits = np.array(list(itertools.product((3, 4), repeat=size)))
        held = np.array([is_held_out(row) for row in bits])
        odd = (bits == 4).sum(1) % 2 == 1
        for part in (slice(None), odd, ~odd, bits[:, 0] == 4, bits[:, -1] == 3):
            spread = (0.25 * 0.75 / len(held[part])) ** 0.5
            assert abs(held[part].mean() - 0.25) < 5 * spread


def test_the_sides_are_those_of_earlier_versions():
    """Golden: older checkpoints are evaluated on prompts that they were not trained on."""
    sides = "".join(str(int(is_held_out([1, 3, token, 2]))) for token in range(64))
    assert sides == SIDES
    for kind in (np.int32, np.uint8, np.int64):
        rows = [np.array([1, 3, token, 2], dtype=kind) for token in range(64)]
        assert "".join(str(int(is_held_out(row))) for row in rows) == SIDES
