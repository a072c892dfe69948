"""Two models that differ in their encoding start from the same weights, bit for bit."""

import itertools

import pytest
import torch

from zoo import registry

SETUPS = [("decoder", {}), ("encoder", {}), ("decoder", {"norm": "rmsnorm", "activation": "swiglu"})]


def of_the_rest(model):
    return {name: p for name, p in model.named_parameters() if not name.startswith("encoding.")}


def of_the_encoding(model):
    return {name: p for name, p in model.named_parameters() if name.startswith("encoding.")}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def started(model_of):
    return lambda *args, **config: model_of(*args, large_weights=False, **config)


@pytest.mark.parametrize(("kind", "config"), SETUPS)
def test_any_two_encodings_share_every_other_weight(kind, config, spec_of, started):
    models = {
        name: started(spec_of(name), kind, **config)
        for name in registry.encodings.names()
        if getattr(registry.encodings.describe(name), kind)
    }
    for one, other in itertools.combinations(models, 2):
        assert equal(of_the_rest(models[one]), of_the_rest(models[other])), (one, other)


def test_an_encoding_added_to_another_changes_neither(started):
    alone, together = started("shaw"), started(["shaw", "t5"])
    assert equal(of_the_rest(alone), of_the_rest(together))
    theirs = of_the_encoding(together)
    assert all(torch.equal(p, theirs[name]) for name, p in of_the_encoding(alone).items())


@pytest.mark.parametrize("name", registry.encodings.names())
def test_nothing_but_the_seed_decides(name, spec_of, started):
    torch.manual_seed(1)
    one = started(spec_of(name))
    torch.manual_seed(2)
    torch.rand(7)
    started("t5", seed=5)
    other = started(spec_of(name))
    assert equal(dict(one.named_parameters()), dict(other.named_parameters()))


@pytest.mark.parametrize("name", registry.encodings.names())
def test_another_seed_draws_anew_all_that_is_drawn(name, spec_of, started):
    one, other = started(spec_of(name), seed=0), dict(started(spec_of(name), seed=1).named_parameters())
    for parameter_name, p in one.named_parameters():
        # What starts from one value everywhere is not drawn.
        assert torch.equal(p, other[parameter_name]) == (p.unique().numel() == 1), parameter_name
        if not parameter_name.startswith("encoding."):
            assert (p.unique().numel() == 1) == (p.dim() < 2), parameter_name


def test_no_two_matrices_are_alike(started):
    model = started("shaw", num_layers=4)
    matrices = [p.flatten()[:64] for p in model.parameters() if p.dim() > 1]
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(matrices, 2))


def test_more_layers_leave_the_first_ones_as_they_were(started):
    shallow, deep = (dict(started("none", num_layers=n).named_parameters()) for n in (2, 8))
    assert torch.equal(shallow["blocks.1.attention.qkv.weight"], deep["blocks.1.attention.qkv.weight"])
    # Into the residual stream twice the depth goes by the root of two.
    for name in ("blocks.1.attention.out.weight", "blocks.1.feed_forward.down.weight"):
        torch.testing.assert_close(shallow[name], 2 * deep[name])


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_the_start_is_gpt_2_s(activation, started):
    model = started("none", num_layers=4, d_model=192, activation=activation, tie_embeddings=False)
    for name, p in model.named_parameters():
        if p.dim() < 2:
            assert (p == (0 if name.endswith("bias") else 1)).all(), name
            continue
        into_residual = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
        expected = 0.02 / 8**0.5 if into_residual else 0.02
        assert p.std().item() == pytest.approx(expected, rel=0.05), name
        assert p.mean().item() == pytest.approx(0, abs=0.05 * expected), name


def test_building_leaves_the_encoding_s_generator_alone(started):
    """Encodings draw from a generator of their own."""
    torch.manual_seed(3)
    started("none")
    after_none = torch.rand(3)
    torch.manual_seed(3)
    started(["shaw", "t5", "learned"])
    assert torch.equal(torch.rand(3), after_none)
