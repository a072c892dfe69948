"""Two models that differ in their encoding start from the same weights, bit for bit."""

import itertools

import pytest
import torch

from zoo import registry
from zoo.seeds import seed_of

SETUPS = [("decoder", {}), ("encoder", {}), ("decoder", {"norm": "rmsnorm", "activation": "swiglu"}),
          ("encoder", {"norm_position": "post", "head_transform": True})]  # fmt: skip


def of_the_rest(model):
    return {name: p for name, p in model.named_parameters() if not name.startswith("encoding.")}


def of_the_encoding(model):
    return {name: p for name, p in model.named_parameters() if name.startswith("encoding.")}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def model_at_start(model_of):
    return lambda *args, **config: model_of(*args, large_weights=False, **config)


def test_seeds_stay_those_of_stored_results():
    assert seed_of(0, "tokens.weight") == 1494602333192177342  # half of the first 16 digits of sha256sum


@pytest.mark.parametrize(("kind", "config"), SETUPS)
def test_any_two_encodings_share_every_other_weight(kind, config, spec_of, model_at_start):
    shared = of_the_rest(model_at_start("none", kind, **config))
    names = [n for n in registry.encodings.names() if getattr(registry.encodings.describe(n), kind)]
    others = {name: of_the_rest(model_at_start(spec_of(name), kind, **config)) for name in names}
    assert [name for name, one in others.items() if not equal(one, shared)] == []


def test_parameters_keep_the_order_of_the_optimizer_states_in_older_checkpoints(model_at_start):
    names = [name for name, _ in model_at_start("none", qk_norm=True).blocks[0].named_parameters()]
    assert [name.removesuffix(".weight") for name in names if name.endswith("weight")] == [
        "attention_norm", "attention.qkv", "attention.out", "attention.q_norm", "attention.k_norm",
        "feed_forward_norm", "feed_forward.up", "feed_forward.down",
    ]  # fmt: skip


def test_an_encoding_added_to_another_changes_neither(model_at_start):
    alone, together = model_at_start("shaw"), model_at_start(["shaw", "t5"])
    assert equal(of_the_rest(alone), of_the_rest(together))
    theirs = of_the_encoding(together)
    assert all(torch.equal(p, theirs[name]) for name, p in of_the_encoding(alone).items())


def test_nothing_but_the_seed_decides(spec_of, model_at_start):
    differing = []
    for name in registry.encodings.names():
        torch.manual_seed(1)
        one = model_at_start(spec_of(name))
        torch.manual_seed(2)
        model_at_start("t5", seed=5)
        if not equal(dict(one.named_parameters()), dict(model_at_start(spec_of(name)).named_parameters())):
            differing.append(name)
    assert not differing


OF_ALIBI = {("bam", "encoding.slots.0.0.alpha")}
"""Parameters that start from ALiBi's slopes."""


def test_another_seed_draws_other_values(spec_of, model_at_start):
    wrong = []
    for name in registry.encodings.names():
        one, other = (dict(model_at_start(spec_of(name), seed=seed).named_parameters()) for seed in (0, 1))
        for parameter, p in one.items():
            # A parameter that starts from one value everywhere is not drawn.
            constant = p.unique().numel() == 1 or (name, parameter) in OF_ALIBI
            if torch.equal(p, other[parameter]) != constant:
                wrong.append((name, parameter))
            if not parameter.startswith("encoding.") and constant != (p.dim() < 2):
                wrong.append((name, parameter))
    assert not wrong


def test_no_two_matrices_are_alike(model_at_start):
    model = model_at_start("shaw", num_layers=4)
    matrices = [p.flatten()[:64] for p in model.parameters() if p.dim() > 1]
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(matrices, 2))


def test_more_layers_leave_the_first_ones_as_they_were(model_at_start):
    shallow, deep = (dict(model_at_start("none", num_layers=n).named_parameters()) for n in (2, 8))
    assert torch.equal(shallow["blocks.1.attention.qkv.weight"], deep["blocks.1.attention.qkv.weight"])
    # Into the residual stream twice the depth goes by the root of two.
    for name in ("blocks.1.attention.out.weight", "blocks.1.feed_forward.down.weight"):
        torch.testing.assert_close(shallow[name], 2 * deep[name])


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_a_start_from_0_02_is_gpt_2_s(activation, model_at_start):
    config = {"num_layers": 4, "d_model": 192, "activation": activation, "tie_embeddings": False}
    model = model_at_start("none", init_std=0.02, **config)
    for name, p in model.named_parameters():
        if p.dim() < 2:
            assert (p == (0 if name.endswith("bias") else 1)).all(), name
            continue
        into_residual = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
        expected = 0.02 / 8**0.5 if into_residual else 0.02
        assert p.std().item() == pytest.approx(expected, rel=0.05), name
        assert p.mean().item() == pytest.approx(0, abs=0.05 * expected), name


def test_the_start_follows_the_width_of_the_input(model_at_start):
    model = model_at_start("none", num_layers=4, d_model=192, tie_embeddings=False)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            into_residual = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
            expected = p.shape[1] ** -0.5 / (8**0.5 if into_residual else 1)
            assert p.std().item() == pytest.approx(expected, rel=0.05), name


def test_first_scores_do_not_depend_on_the_width(model_at_start):
    """Queries and keys of a normalised vector have unit variance, so that a scaled product has it too."""
    for width in (64, 256):
        block = model_at_start("none", d_model=width, num_heads=4).blocks[0]
        x = torch.nn.functional.layer_norm(torch.randn(1, 512, width), (width,))
        q, k, _ = (part.unflatten(-1, (4, -1)) for part in block.attention.qkv(x).chunk(3, -1))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / (width / 4) ** 0.5
        assert scores.std().item() == pytest.approx(1, rel=0.1)
