"""What every encoding promises, for each one in the registry, for each value that its options list, and for
three plugins that use the hooks which the zoo's own leave alone."""

import inspect
import typing
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from zoo.encodings import registry
from zoo.encodings.base import Span
from zoo.encodings.description import read_descriptions
from zoo.encodings.stack import build_encoding
from zoo.models.cache import Cache

PLUGINS = sorted((Path(__file__).parent / "plugins").glob("*.py"))
DESCRIPTIONS = [registry.describe(name) for name in registry.names()]
DESCRIPTIONS += [one for file in PLUGINS for one in read_descriptions(file, {})]
BY_NAME = {one.name: one for one in DESCRIPTIONS}
KINDS = ("decoder", "encoder")
TOGETHER = [["rope", "forget_gate"], ["alibi", "counted"]]


def listed_values(annotation):
    return (True, False) if annotation is bool else typing.get_args(annotation)


def variants():
    """Each encoding as it comes, then with every other value of an option that lists its values."""
    for one in DESCRIPTIONS:
        yield one.name
        for option in one.options:
            if option.annotation is bool or typing.get_origin(option.annotation) is typing.Literal:
                for value in listed_values(option.annotation):
                    if value != option.default:
                        yield {"name": one.name, option.name: value}


def names_in(spec):
    specs = spec if isinstance(spec, list) else [spec]
    return [one if isinstance(one, str) else one["name"] for one in specs]


def label(spec):
    if isinstance(spec, dict):
        return "-".join(map(str, spec.values()))
    return "+".join(spec) if isinstance(spec, list) else str(spec)


def fits(spec, kind):
    return all(getattr(BY_NAME[name], kind) for name in names_in(spec))


SPECS = [*variants(), *TOGETHER]
RELATIVE = [spec for spec in SPECS if all(BY_NAME[name].relative for name in names_in(spec))]
ABSOLUTE = [spec for spec in SPECS if spec not in RELATIVE]
decoders = pytest.mark.parametrize("spec", [spec for spec in SPECS if fits(spec, "decoder")], ids=label)
encoders = pytest.mark.parametrize("spec", [spec for spec in SPECS if fits(spec, "encoder")], ids=label)
both = pytest.mark.parametrize(
    ("spec", "kind"), [(spec, kind) for spec in SPECS for kind in KINDS if fits(spec, kind)], ids=label
)
alone = pytest.mark.parametrize("spec", [spec for spec in SPECS if not isinstance(spec, list)], ids=label)

pytestmark = pytest.mark.usefixtures("plugins")


def same(actual, expected, atol=1e-5):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


# Who sees whom.


@decoders
@pytest.mark.parametrize("window", [None, 5])
def test_no_output_of_a_decoder_moves_when_a_later_token_does(spec, window, model_of, tokens):
    model, row = model_of(spec, window=window), tokens(1, 12)
    # In row t the tokens from t on are others.
    changed = row.repeat(12, 1)
    for t in range(12):
        changed[t, t:] = (changed[t, t:] + 1) % 29
    before, after = model(row), model(changed)
    for t in range(12):
        same(after[t, :t], before[0, :t])
        assert (after[t, t] - before[0, t]).abs().max() > 1e-3


@encoders
def test_each_output_of_an_encoder_knows_both_ends(spec, model_of, tokens):
    model, row = model_of(spec, "encoder"), tokens(1, 12)
    before = model(row)
    for changed_at, seen_at in ((0, -1), (-1, 0)):
        changed = row.clone()
        changed[0, changed_at] += 1
        assert (model(changed % 29)[0, seen_at] - before[0, seen_at]).abs().max() > 1e-5


# Shapes, precision, gradients.


@both
def test_shapes_and_precision(spec, kind, model_of, tokens):
    model = model_of(spec, kind)
    logits = model(tokens(3, 9))
    assert logits.shape == (3, 9, 29)
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(tokens(3, 9))
    assert mixed.dtype == torch.bfloat16
    torch.testing.assert_close(mixed.float(), logits, rtol=0.1, atol=0.2)
    assert model_of(spec, kind, head="pointer")(tokens(3, 9)).shape == (3, 9)


@both
@pytest.mark.parametrize(
    "style",
    [
        {},
        {
            "norm": "rmsnorm",
            "activation": "swiglu",
            "qk_norm": True,
            "tie_embeddings": False,
            "num_kv_heads": 3,
        },
    ],
    ids=["plain", "modern"],
)
def test_a_gradient_reaches_every_parameter(spec, kind, style, model_of, tokens):
    model, row = model_of(spec, kind, lively=False, **style).train(), tokens(4, 16)
    F.cross_entropy(model(row).flatten(0, 1), row.roll(-1, 1).flatten()).backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert unused == []
    assert all(p.grad.isfinite().all() for p in model.parameters())


@both
def test_the_state_is_whole(spec, kind, model_of, tokens):
    one, other = model_of(spec, kind, seed=1), model_of(spec, kind, seed=2)
    assert not torch.equal(one(tokens(2, 8)), other(tokens(2, 8)))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(tokens(2, 8)), other(tokens(2, 8)))


# Positions.


@pytest.mark.parametrize(
    ("spec", "kind"), [(spec, kind) for spec in RELATIVE for kind in KINDS if fits(spec, kind)], ids=label
)
def test_a_relative_encoding_does_not_know_where_a_sequence_begins(spec, kind, model_of, tokens):
    model, row = model_of(spec, kind), tokens(3, 12)
    moved = torch.arange(12) + torch.tensor([[0], [13], [1000]])
    same(model(row, positions=moved), model(row), atol=2e-4)


@pytest.mark.parametrize("spec", ABSOLUTE, ids=label)
def test_an_absolute_encoding_does(spec, model_of, tokens):
    if label(spec) == "learned":
        spec = {"name": "learned", "table_length": 1012}
    model, row = model_of(spec), tokens(3, 12)
    assert (model(row, positions=torch.arange(12) + 1000) - model(row)).abs().max() > 1e-2


@both
def test_padding_on_the_left_changes_nothing(spec, kind, model_of, tokens):
    model, row = model_of(spec, kind), tokens(1, 9)
    whole = model(row)
    padded = torch.cat((tokens(1, 5), row), 1)
    keep = torch.arange(14)[None] >= 5
    same(model(padded, keep)[:, 5:], whole)
    # Beside a sequence that needs none.
    full = tokens(1, 14)
    together = model(torch.cat((padded, full)), torch.cat((keep, torch.ones_like(keep))))
    same(together[0, 5:], whole[0])
    same(together[1], model(full)[0])


@both
def test_padding_on_the_right_changes_nothing(spec, kind, model_of, tokens):
    model, row = model_of(spec, kind), tokens(1, 9)
    padded = torch.cat((row, tokens(1, 5)), 1)
    same(model(padded, torch.arange(14)[None] < 9)[:, :9], model(row))


@both
def test_padding_spoils_no_gradient(spec, kind, model_of, tokens):
    model, row = model_of(spec, kind).train(), tokens(2, 9)
    keep = torch.arange(9)[None] >= torch.tensor([[0], [4]])
    model(row, keep)[keep].square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


# Decoding with a cache.


@decoders
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("chunks", [[1] * 12, [5, 1, 1, 3, 2]], ids=["by token", "in chunks"])
def test_decoding_with_a_cache_is_the_full_forward(spec, chunks, window, model_of, tokens):
    model, row = model_of(spec, window=window), tokens(2, 12)
    cache = Cache(model.num_layers)
    steps = [model(part, cache=cache) for part in row.split(chunks, 1)]
    same(torch.cat(steps, 1), model(row))


@decoders
def test_so_it_is_after_padding(spec, model_of, tokens):
    model, row = model_of(spec), tokens(2, 12)
    keep = torch.arange(12)[None] >= torch.tensor([[0], [3]])
    cache = Cache(model.num_layers)
    steps = [model(row[:, :6], keep[:, :6], cache)]
    steps += [model(row[:, t : t + 1], cache=cache) for t in range(6, 12)]
    same(torch.cat(steps, 1)[keep], model(row, keep)[keep])


# Far away.


@both
def test_beyond_the_trained_length_it_does_what_it_says(spec, kind, model_of, tokens):
    model = model_of(spec, kind, length=8)
    limit = model.encoding.max_length
    if limit is None:
        assert model(tokens(1, 32)).isfinite().all()
        return
    assert any(BY_NAME[name].extrapolates == "policy" for name in names_in(spec))
    assert model(tokens(1, limit)).isfinite().all()
    with pytest.raises(ValueError, match=f"{limit + 1} tokens"):
        model(tokens(1, limit + 1))
    if kind == "decoder":
        cache = Cache(model.num_layers)
        model(tokens(1, limit), cache=cache)
        with pytest.raises(ValueError, match=f"{limit + 1} tokens"):
            model(tokens(1, 1), cache=cache)


@pytest.mark.parametrize("one", DESCRIPTIONS, ids=lambda one: one.name)
def test_a_policy_is_an_option(one, model_of):
    limits = [
        model_of(spec, length=8).encoding.max_length
        for spec in SPECS
        if names_in(spec) == [one.name] and fits(spec, "decoder")
    ]
    if one.extrapolates == "policy":
        assert None in limits and 8 in limits
    else:
        assert set(limits) == {None}


@alone
def test_places_stay_exact_in_bf16_at_position_100_000(spec, size_of):
    """bf16 counts exactly to 256 only. Places and angles must be computed in float32 and rounded once, at the
    end: 2^-8 of the value for what is looked up or turned, twice that where a product follows."""
    far, length = 100_000, 16
    if label(spec) == "learned":
        spec = {"name": "learned", "table_length": far + length}
    size = size_of(causal=fits(spec, "decoder"))
    low = build_encoding(spec, size).bfloat16()
    exact = build_encoding(spec, size)
    exact.load_state_dict({name: value.float() for name, value in low.state_dict().items()})
    pos, near = torch.arange(far, far + length), torch.arange(length)
    x, q, k = (
        torch.randn(shape).bfloat16() for shape in ((1, length, 48), (1, 6, length, 8), (1, 6, length, 8))
    )

    def close(actual, expected, rounds=1):
        torch.testing.assert_close(actual.float(), expected, rtol=rounds * 2**-8, atol=rounds * 2**-8)

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        close(low.embed(x, pos), exact.embed(x.float(), pos), rounds=2)
        turned = low.rotate(q, k, Span(pos, pos))
        right = exact.rotate(q.float(), k.float(), Span(pos, pos))
        for one, other, whole in zip(turned, right, (q, k), strict=True):
            # Turning lengthens no vector, so its length bounds the rounding of each component.
            assert ((one.float() - other).abs() <= 2**-8 * whole.float().norm(dim=-1, keepdim=True)).all()
        if low.uses("bias"):
            head = torch.arange(6)[:, None, None]
            for keys in (pos, near):
                close(low.bias(head, pos[:, None], keys), exact.bias(head, pos[:, None], keys))
            same(low.bias(head, pos[:, None], pos), low.bias(head, near[:, None], near), atol=0)


# What it says of itself.


@pytest.mark.parametrize("one", DESCRIPTIONS, ids=lambda one: one.name)
def test_it_says_what_it_is(one):
    docstring = inspect.getdoc(registry.load(one.name))
    first, *rest = docstring.splitlines()
    assert first.endswith(".") and (not rest or rest[0] == "")
    assert one.summary == first
    assert "arXiv:" in one.paper
    assert one.family in {"absolute", "position ids", "rotary", "bias", "content", "contextual"}
    assert one.decoder or one.encoder
    for option in one.options:
        assert f"\n    {option.name}: " in docstring
        for value in typing.get_args(option.annotation):
            if isinstance(value, str):
                assert f"`{value}`" in docstring


@pytest.mark.parametrize("one", DESCRIPTIONS, ids=lambda one: one.name)
def test_one_that_is_per_layer_has_an_instance_for_each(one, model_of):
    stack = model_of(one.name, num_layers=3).encoding
    instances = {id(stack.view(layer).encodings[0]) for layer in range(3)}
    assert len(instances) == (3 if one.per_layer else 1)
