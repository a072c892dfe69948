"""Encodings with options chosen at random: what a recipe's checks let through is a model that trains."""

import pytest
import torch
import torch.nn.functional as F
from limits import at_most
from option_mutations import small_recipe

from zoo.errors import InputError
from zoo.recipe import resolve, validate_trainable
from zoo.tasks import build, build_encoding

VOCABULARY = 260
MOST_SECONDS = 20  # for one model, on a machine with other work; it takes milliseconds


def trained_a_step(mapping):
    """Whether a recipe is accepted; then its model has made a step of training."""
    try:
        recipe = resolve(mapping)
        validate_trainable(recipe)
        assert resolve(recipe.as_dict()) == recipe
        build_encoding(recipe)
    except InputError as error:
        text = str(error)
        assert text and len(text) < 60_000 and all(one.isprintable() or one == "\n" for one in text), text
        return False
    model = build(recipe, vocab_size=VOCABULARY)
    tokens = torch.randint(VOCABULARY, (2, recipe.data.sequence_length))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    F.cross_entropy(model(tokens).flatten(0, -2).float(), tokens.flatten()).backward()
    optimizer.step()
    return True


def tried(numbers):
    accepted = 0
    for number in numbers:
        mapping = small_recipe(number)
        try:
            with at_most(MOST_SECONDS):
                accepted += trained_a_step(mapping)
        except BaseException as error:
            error.add_note(f"case {number}: {mapping}")
            raise
    return accepted


@pytest.mark.parametrize("changes, message", [
    ({"encoding": "shaw", "kernel": "sdpa"}, "model.kernel: kernel 'sdpa' does not return attention weights"),
    ({"encoding": {"name": "cope", "max_positions": 2**62}}, "numbers so large"),
    ({"encoding": {"name": "path", "rank": 2**45}}, "numbers so large"),
    ({"encoding": {"name": "fox", "gate_bias": 1e300}}, "numbers so large"),
    ({"encoding": {"name": "xpos", "scale_base": 1e-300}}, "data.sequence_length: 16 tokens.* ends at 0"),
    ({"encoding": {"name": "dpb", "depth": 2**30}}, "depth must be at most 100"),
    ({"encoding": "alibi", "num_layers": 10**9}, "model.num_layers: must be less than or equal to 1000"),
    ({"encoding": "alibi", "d_model": 2**62}, "model.d_model: must be less than"),
    ({"encoding": "alibi", "d_model": 1e300}, "model.d_model: must be less than"),
])  # fmt: skip
def test_what_the_fuzzing_found_is_reported(recipe, changes, message):
    mapping = recipe().as_dict()
    mapping["model"] |= {"kind": "decoder", "d_model": 32, "num_heads": 4, **changes}
    mapping["data"]["sequence_length"] = 16
    with pytest.raises(InputError, match=message), at_most(MOST_SECONDS):
        build_encoding(resolve(mapping))


def test_models_of_random_options_train():
    assert tried(range(60)) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_many_models_of_random_options_train(part):
    assert tried(range(60 + part, 1560, 2)) >= 150
