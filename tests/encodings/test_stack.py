"""Encodings built from their specs: alone, wrapped, together, one for each layer."""

import pytest
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


def test_the_shortest_limit_counts(model_of):
    limits = [{"name": "learned", "table_length": length} for length in (40, 24)]
    assert model_of(limits).encoding.max_length == 24
    assert model_of(["alibi", limits[0]]).encoding.max_length == 40
