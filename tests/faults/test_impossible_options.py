"""Options that pass by themselves and give no model: refused before the training."""

import pytest

from zoo.errors import InputError
from zoo.recipe import resolve
from zoo.tasks import build_encoding


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
    with pytest.raises(InputError, match=message):
        build_encoding(resolve(mapping))
