"""Encodings for models trained with RoPE keep its scaling: they turn by its scaled angles."""

import pytest
import torch
from published import publish
from test_dual_chunk import chunked
from test_rerope import clipped, scores_by_pairs
from test_rope_scaling import D, L, formula
from test_self_extend import grouped
from test_string import shifted

import zoo
from zoo import registry
from zoo.encodings.base import Size
from zoo.encodings.context import AttentionContext
from zoo.errors import InputError
from zoo.pretrained.import_model import import_model, read_published

CASES = {
    "self_extend": ({"window": 4, "group": 3}, grouped(4, 3)),
    "dual_chunk": ({"longest": 9, "window": 3}, chunked(9, 3)),
    "rerope": ({"window": 5, "leak": 0.25, "log_scale": False}, clipped(5, 0.25)),
    "string": ({"window": 6, "local": 2}, shifted(6, 2)),
}
NOTHING_CHANGED = {"self_extend": "window: 64", "dual_chunk": "longest: 80, window: 8",
                   "rerope": "window: 64, log_scale: false", "string": "window: 64"}  # fmt: skip
SCALINGS = [
    ("linear", {"factor": 4.0}),
    ("ntk", {"factor": 4.0, "partial": 0.5}),
    ("yarn", {"factor": 4.0, "base": 500.0}),
    ("llama3", {"factor": 8.0}),
    ("none", {"proportion": 0.6}),
]


def test_every_encoding_that_replaces_rope_is_among_them():
    known = registry.encodings.all().items()
    assert {name for name, one in known if one.builtin and "rope" in one.replaces} == set(CASES)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("scaling", "rope"), SCALINGS, ids=[scaling for scaling, _ in SCALINGS])
def test_each_pair_is_turned_by_its_distance_at_the_scaled_frequency(name, scaling, rope, agree):
    options, distance = CASES[name]
    size = Size(D, 1, 1, L, True)
    encoding = registry.encodings.load(name)(size, scaling=scaling, **options, **rope)
    pos, (q, k) = torch.arange(2 * L), torch.randn(2, 1, 1, 2 * L, D)
    frequency, attention = formula(scaling, L, **rope)
    width = 2 * len(frequency)
    # Of the dimensions that are turned alone: the others have no attention factor.
    q[..., width:] = 0
    expected = scores_by_pairs(
        q, k, pos, pos, distance, width, scale_of=lambda p: attention**2, frequency=frequency
    )
    context = AttentionContext(pos, pos)
    turned_q, turned_k = encoding.rotate(q, k, context)
    got = encoding.logits(turned_q @ turned_k.mT * D**-0.5, q, k, context)
    agree(got.tril(), expected.tril(), encoding=name, against=f"a loop over distances, {scaling}")


@pytest.mark.parametrize("name", CASES)
def test_the_imaginary_part_is_that_of_queries_turned_back_by_a_quarter(name):
    options, pos = CASES[name][0], torch.arange(2 * L)
    q, k = torch.randn(2, 1, 1, 2 * L, D)
    back = torch.cat((q[..., D // 2 :], -q[..., : D // 2]), -1)
    scores = []
    for imaginary, given in ((True, q), (False, back)):
        encoding = registry.encodings.load(name)(Size(D, 1, 1, L, True), imaginary=imaginary, **options)
        context = AttentionContext(pos, pos)
        turned_q, turned_k = encoding.rotate(given, k, context)
        scores.append(encoding.logits(turned_q @ turned_k.mT * D**-0.5, given, k, context).tril())
    torch.testing.assert_close(*scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_an_imported_model_with_a_scaling_takes_them(name, here):
    publish("llama 3", here / "published")
    run = import_model(read_published("published"), name="ours")
    tokens = torch.randint(300, (1, 60))
    same = zoo.load(run, sets=[f"model.encoding={{name: {name}, {NOTHING_CHANGED[name]}}}"])
    torch.testing.assert_close(same(tokens), zoo.load(run)(tokens), rtol=0, atol=1e-5)
    assert (zoo.load(run, sets=[f"model.encoding={name}"])(tokens) - same(tokens)).abs().max() > 1e-3
    with pytest.raises(InputError, match="dynamic_ntk follows the length of the sequence"):
        zoo.load(run, sets=[f"model.encoding={{name: {name}, scaling: dynamic_ntk}}"])
