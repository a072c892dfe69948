"""An encoding for each layer: layer by layer against models that have it everywhere."""

import pytest
import torch

from zoo.encodings.stack import build_encoding
from zoo.errors import InputError

PATTERN = ["rope", "alibi", "none"]


def interleave(*pattern):
    return {"name": "interleave", "pattern": list(pattern)}


def borrow(model, other):
    """Give a model the weights of another that has the same ones outside its encoding."""
    weights = {k: v for k, v in other.state_dict().items() if not k.startswith("encoding.")}
    assert model.load_state_dict(weights, strict=False).unexpected_keys == []


def hidden_by_layer(model, row):
    """The outputs of the blocks in a forward pass."""
    seen = []
    hooks = [block.register_forward_hook(lambda _, __, out: seen.append(out)) for block in model.blocks]
    model(row)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_layer_l_has_the_encoding_l_of_the_pattern(kind, model_of, tokens, agree):
    row = tokens(2, 12)
    model = model_of(interleave(*PATTERN), kind, num_layers=5)
    got = hidden_by_layer(model, row)
    x = model.tokens(row)
    for layer in range(5):
        same = model_of(PATTERN[layer % 3], kind, num_layers=5)
        borrow(same, model)
        # One layer of the model that has this encoding everywhere, on the output of the layer before.
        contexts = same.encoding.contexts(*row.shape, row.device)
        x = same.blocks[layer](
            x, same.encoding.layer(layer), same.encoding.instances_of_layer(contexts, layer), None
        )
        agree(got[layer], x, encoding="interleave", against="a model of one encoding, layer by layer")


def test_only_what_a_layer_uses_is_kept(model_of, tokens):
    model = model_of(interleave("shaw", "t5"), num_layers=4)
    kept = [name for name in model.state_dict() if name.startswith("encoding.")]
    assert kept == [
        *(f"encoding.slots.0.0.of.{table}" for table in ("keys", "values")),
        "encoding.slots.0.1.of.table",
        *(f"encoding.slots.0.2.of.{table}" for table in ("keys", "values")),
        "encoding.slots.0.3.of.table",
    ]
    model.train()(tokens(4, 16)).square().mean().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


# Claims.


def test_it_claims_what_holds_in_every_layer(size_of):
    for pattern, relative, extrapolates in (
        (["rope", "none"], True, "no"),
        (["alibi", "t5"], True, "yes"),
        ([{"name": "randomized", "of": "alibi", "draw": "layer"}, "alibi"], False, "policy"),
    ):
        for layer in range(2):
            encoding = build_encoding(interleave(*pattern), size_of(layer=layer))
            assert (encoding.relative, encoding.extrapolates) == (relative, extrapolates)
            assert encoding.per_layer


def test_the_shortest_limit_of_any_layer_counts(model_of, tokens):
    drawn = {"name": "randomized", "of": "rope", "max_position": 20}
    model = model_of(interleave("rope", "none", drawn), num_layers=3)
    assert model.encoding.max_length == 20
    assert model.encoding.max_cached_length == 0


# Within one another.


def test_wrapped_by_another(model_of, tokens):
    row, positions = tokens(2, 12), torch.arange(12) * 3
    model = model_of({"name": "randomized", "of": interleave("rope", "none"), "max_position": 36})
    for encoding in model.encoding.slots[0]:
        encoding._drawn = lambda length: positions[None]
    expected = model_of(interleave("rope", "none"))(row, positions=positions)
    torch.testing.assert_close(model(row), expected, rtol=0, atol=1e-5)


def test_layers_of_one_entry_share_a_draw_and_those_of_others_have_their_own(model_of):
    drawn = {"name": "randomized", "of": "rope"}
    model = model_of(interleave(drawn, "none", drawn), num_layers=6).train()
    places = model.encoding.map_instances(lambda encoding: encoding.positions(torch.arange(12), 1).tolist())
    rows = [model.encoding.instances_of_layer(places, layer)[0] for layer in range(6)]
    assert rows[0] == rows[3] and rows[2] == rows[5]
    assert rows[0] != rows[2]
    assert rows[1] == rows[4] == list(range(12))


# What cannot be.


def test_an_encoding_before_the_first_layer_is_refused(model_of, tokens):
    for of in ("sinusoidal", "learned", {"name": "shape", "of": "sinusoidal"}):
        name = of if isinstance(of, str) else of["name"]
        with pytest.raises(InputError, match=rf"'{name}' acts on the token embeddings, .* a list"):
            model_of(interleave("rope", of))
        assert model_of(["sinusoidal", interleave("rope", "none")])(tokens(1, 8)).isfinite().all()


def test_each_layer_is_checked_for_two_that_rotate(model_of):
    with pytest.raises(InputError, match="'interleave' and 'rope' cannot be combined"):
        model_of([interleave("none", "rope"), "rope"])
    assert model_of([interleave("none", "alibi"), "rope"])


def test_a_fault_in_a_pattern_is_reported_with_its_key(recipe):
    for encoding, problem in (
        ("[rope, nonne]", r"encoding\.pattern\.1: no encoding 'nonne'; did you mean 'none'"),
        ("[rope, {name: rope, bas: 1}]", r"encoding\.pattern\.1\.bas: unknown key; did you mean 'base'"),
        ("[{name: randomized, of: rpe}]", r"encoding\.pattern\.0\.of: no encoding 'rpe'"),
        ("[[rope, alibi], none]", r"encoding\.pattern\.0: must be the name of an encoding, got a list of 2"),
        ("rope", r"encoding\.pattern: must be a list, got the text 'rope'; write \[rope\]"),
        ("[]", r"encoding\.pattern: must be a list of at least 1, got an empty list"),
    ):
        with pytest.raises(InputError, match=f"model.{problem}"):
            recipe("text", f"model.encoding={{name: interleave, pattern: {encoding}}}")


@pytest.mark.parametrize("wrapped", ["{name: dape, of: alibi}", "{name: randomized, of: xpos}"])
def test_each_encoding_of_a_pattern_must_fit_the_kind(wrapped, recipe):
    spec = f"model.encoding={{name: interleave, pattern: [rope, {wrapped}]}}"
    assert recipe("text", spec)
    with pytest.raises(InputError, match=r"model\.encoding\.pattern\.1.*is not for an encoder"):
        recipe("masked", spec)
