"""Encodings with random options: a recipe that passes the checks gives a model that trains."""

import pytest
import torch
import torch.nn.functional as F
from fuzzing import FACTOR, SEED
from limits import at_most
from option_mutations import small_recipe

from zoo.errors import InputError
from zoo.recipe import resolve, validate_trainable
from zoo.tasks import build, build_encoding

VOCABULARY = 260
MOST_SECONDS = 60  # for one model, which takes milliseconds


def trained_a_step(mapping):
    """Whether a recipe is accepted; then its model has made a step of training."""
    try:
        recipe = resolve(mapping)
        validate_trainable(recipe)
        assert resolve(recipe.as_dict()) == recipe
        build_encoding(recipe)
    except InputError as error:
        text = str(error)
        assert text and len(text) < 60_000, text
        return False
    model = build(recipe, vocab_size=VOCABULARY)
    tokens = torch.randint(VOCABULARY, (2, recipe.data.sequence_length))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    F.cross_entropy(model(tokens).flatten(0, -2).float(), tokens.flatten()).backward()
    optimizer.step()
    return True


@pytest.mark.parametrize("changes, message", [
    ({"encoding": "shaw", "kernel": "sdpa"}, "model.kernel: kernel 'sdpa' does not return attention weights"),
    ({"encoding": {"name": "cope", "max_positions": 2**62}}, "encoding 'cope' cannot be built: RuntimeError"),
    ({"encoding": {"name": "xpos", "scale_base": 1e-300}}, "data.sequence_length: 16 tokens.* ends at 0"),
    ({"encoding": {"name": "dpb", "depth": 2**30}}, "depth must be at most 100"),
    ({"encoding": "alibi", "d_model": 1e300}, "model.d_model: must be less than"),
])  # fmt: skip
def test_a_combination_that_cannot_be_built_is_refused(recipe, changes, message):
    mapping = recipe().as_dict()
    mapping["model"] |= {"kind": "decoder", "d_model": 32, "num_heads": 4, **changes}
    mapping["data"]["sequence_length"] = 16
    with pytest.raises(InputError, match=message), at_most(MOST_SECONDS):
        build_encoding(resolve(mapping))


@pytest.mark.slow
def test_models_of_random_options_train():
    accepted = 0
    for number in range(200 * FACTOR):
        mapping = small_recipe(f"{SEED} {number}")
        try:
            with at_most(MOST_SECONDS):
                accepted += trained_a_step(mapping)
        except BaseException as error:
            error.add_note(f"seed {SEED}, case {number}: {mapping}")
            raise
    print(f"seed {SEED}: {accepted} of {number + 1} accepted")
    assert accepted >= 20 * FACTOR
