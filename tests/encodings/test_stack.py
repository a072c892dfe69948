"""Encodings built from their specs: alone, wrapped, together, one for each layer."""

import pytest
import torch
from torch import nn

import zoo
from zoo.encodings.stack import EncodingStack, build_encoding
from zoo.errors import InputError


@pytest.fixture
def holder(forgetful_registry):
    """An encoding that holds others."""

    @zoo.register("holder")
    class Holder(zoo.Encoding):
        """Holds."""

        def __init__(
            self,
            size: zoo.Size,
            *,
            of: zoo.Encoding,
            maybe: zoo.Encoding | None = None,
            several: list[zoo.Encoding] | None = None,
        ):
            super().__init__(size)
            self.of, self.maybe = of, maybe
            self.several = nn.ModuleList(several or [])
            self.per_layer = of.per_layer

    return Holder


def test_wrapped_encodings_are_built_at_any_depth(holder, size_of):
    spec = {
        "name": "holder",
        "of": {"name": "holder", "of": "shaw", "maybe": None},
        "maybe": {"name": "alibi", "slopes": "geometric"},
        "several": ["rope", {"name": "t5", "num_buckets": 8}],
    }
    made = build_encoding(spec, size_of())
    assert made.of.of.name == "shaw"
    assert made.of.maybe is None
    assert made.maybe.name == "alibi"
    assert [one.name for one in made.several] == ["rope", "t5"]
    assert len(made.several[1].table) == 8
    assert build_encoding(spec, size_of()) is not made


def test_a_wrapper_is_per_layer_where_its_encoding_is(holder, size_of):
    for inner, instances in (("shaw", 2), ("t5", 1)):
        stack = EncodingStack({"name": "holder", "of": inner}, size_of(layer=None))
        assert len(set(map(id, (stack.layer(layer).encodings[0] for layer in range(2))))) == instances


def test_an_impossible_spec_is_an_input_error(size_of):
    for spec, message in (
        ("alibbi", "did you mean 'alibi'"),
        ({"name": "rope", "bas": 2.0}, r"encoding 'rope': .*unexpected keyword argument 'bas'"),
        ({"name": "rope", "partial": 0.1}, "encoding 'rope': rope rotates pairs"),
    ):
        with pytest.raises(InputError, match=message):
            build_encoding(spec, size_of())


def test_a_list_applies_all_of_them(model_of, tokens):
    row = tokens(2, 12)
    together = model_of(["rope", "alibi"])
    alone = [model_of(name)(row) for name in ("rope", "alibi")]
    assert all((together(row) - other).abs().max() > 1e-2 for other in alone)
    # Together with one that does nothing it is itself.
    for pair in (["none", "alibi"], ["alibi", "none"]):
        torch.testing.assert_close(model_of(pair)(row), alone[1], rtol=0, atol=1e-6)


def test_two_biases_add_up(model_of, tokens):
    """Two ALiBis are one with slopes twice as steep."""
    twice, once = model_of(["alibi", "alibi"]), model_of("alibi")
    once.encoding.layer(0).encodings[0].slope *= 2
    torch.testing.assert_close(twice(tokens(2, 12)), once(tokens(2, 12)), rtol=0, atol=1e-6)


def test_the_shortest_limit_counts(model_of):
    limits = [{"name": "learned", "table_length": length} for length in (40, 24)]
    assert model_of(limits).encoding.max_length == 24
    assert model_of(["alibi", limits[0]]).encoding.max_length == 40
