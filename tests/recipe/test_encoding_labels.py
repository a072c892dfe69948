"""Encodings as a recipe has them: their labels, and the message on an option that is missing."""

import pytest
import yaml

import zoo
from zoo.recipe.encoding import check_encoding, encoding_label
from zoo.registry import REQUIRED, encodings

GLOBAL = {"name": "rope", "base": 1_000_000}
NEEDY = [name for name, one in encodings.all().items() if REQUIRED in [o.default for o in one.options]]


@pytest.mark.parametrize(("spec", "label"), [
    ("rope", "rope"),
    (["rope", "alibi"], "rope+alibi"),
    ({"name": "interleave", "pattern": ["rope", "rope", "none"]}, "interleave(rope+rope+none)"),
    ({"name": "interleave", "pattern": [GLOBAL, GLOBAL]}, "interleave(rope+rope)"),
    ({"name": "interleave", "pattern": 5 * ["rope"] + [GLOBAL]}, "interleave(5x rope+rope base=1000000)"),
    ({"name": "randomized", "of": {"name": "heads", "of": [{"name": "alibi", "learned": True}, "alibi"]}},
     "randomized(heads(alibi learned=true+alibi))"),
])  # fmt: skip
def test_a_label_tells_encodings_of_one_name_apart(spec, label):
    assert encoding_label(check_encoding(spec, ())[0]) == label


@pytest.mark.parametrize("name", NEEDY)
def test_an_encoding_without_what_it_needs_is_refused_with_an_example_that_works(name):
    for spec in (name, {"name": name}):
        _, faults = check_encoding(spec, ("model", "encoding"))
        ((path, message),) = faults.items()
        assert path in [("model", "encoding", key) for key in encodings.describe(name).wrapping]
        example = yaml.safe_load(message.partition("missing, as in ")[2])
        assert zoo.encoding(example, d_model=48, num_heads=4, num_layers=2, length=9)
