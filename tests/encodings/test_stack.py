"""Encodings built from their specs: alone, wrapped, together, one for each layer."""

import pytest
import torch
from torch import nn

import zoo
from zoo.encodings.base import positions_by_document
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


def drawn(stack, step, tokens, first=0, layer=0, count=500):
    """What one layer draws for each sequence in a step of a training, [B, count]."""
    stack.seed_draws(0, step, tokens, first)
    return stack.slots[0][layer].random(len(tokens), count, tokens.device)


def test_draws_of_a_training_are_uniform_and_independent_of_each_other(size_of):
    spec = {"name": "randomized", "of": "rope", "draw": "layer"}
    stack, tokens = EncodingStack(spec, size_of(layer=None)).train(), torch.zeros(8, 16).long()
    rows = [drawn(stack, step, tokens, 8 * step, layer) for step in range(25) for layer in range(2)]
    shared = stack.slots[0][0].random(None, 500, tokens.device)
    rows = torch.cat((*rows, shared[None]))
    numbers, count = rows.flatten().sort().values, rows.numel()
    # The largest distance to the uniform distribution exceeds 1.95 / sqrt(n) once in 1,000 draws.
    assert (numbers - torch.arange(count) / count).abs().max() < 1.95 / count**0.5
    # Of 401 rows, and of neighbours within a row: correlations have a standard deviation of 1 / sqrt(n).
    of_rows = torch.corrcoef(rows).fill_diagonal_(0)
    assert of_rows.abs().max() < 6 / 500**0.5 and of_rows.std().item() == pytest.approx(500**-0.5, rel=0.05)
    for apart in (1, 2, 4, 128):
        pairs = torch.stack((rows[:, :-apart].flatten(), rows[:, apart:].flatten()))
        assert abs(torch.corrcoef(pairs)[0, 1]) < 4 / pairs.shape[1] ** 0.5


def test_a_part_of_a_batch_draws_as_in_the_whole(size_of):
    stack, tokens = EncodingStack({"name": "cape", "of": "rope"}, size_of()), torch.zeros(6, 16).long()
    whole = drawn(stack.train(), 3, tokens)
    assert torch.equal(torch.cat([drawn(stack, 3, tokens[:2], first) for first in (0, 2, 4)]), whole)
    assert not torch.equal(drawn(stack, 4, tokens), whole)


def test_a_document_draws_by_its_place_in_the_batch(size_of):
    stack = EncodingStack({"name": "cape", "of": "rope"}, size_of()).train()
    documents = torch.tensor([[0, 0, 2, 2, 2, 5], [0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
    ids = torch.arange(6) - documents

    def moved(some, first):
        stack.seed_draws(0, 1, documents[some], first, documents[some])
        return positions_by_document(stack.slots[0][0], ids[some])

    whole = moved(slice(0, 3), 0)
    assert torch.equal(torch.cat((moved(slice(0, 1), 0), moved(slice(1, 3), 1))), whole)
    assert len(set((whole - ids).flatten().tolist())) == 18
