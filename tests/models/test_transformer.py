"""Decoder and encoder: their variants and the effect of each option."""

import pytest
import torch
import torch.nn.functional as F

from zoo.models.transformer import FeedForward
from zoo.recipe.schema import ModelConfig


def same(actual, expected, atol=1e-5):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


# Pairwise: every two options meet in some variant.
VARIANTS = [
    ("layernorm", "gelu", False, False, "pre", {}),
    ("layernorm", "swiglu", True, True, "both", {"embedding_scale": "sqrt_d_model", "attention_scale": 0.2}),
    ("rmsnorm", "gelu", True, True, "output", {}),
    ("rmsnorm", "swiglu", False, True, "pre", {"first_norm": False}),
    ("rmsnorm", "swiglu", "across_heads", False, "output", {}),
    ("layernorm", "geglu", False, True, "post", {"head_transform": True, "bias": "all"}),
    ("rmsnorm", "geglu_tanh", "across_heads", False, "both", {"head_transform": True}),
]


@pytest.mark.parametrize(("norm", "activation", "qk_norm", "tied", "position", "others"), VARIANTS)
def test_every_variant_learns(norm, activation, qk_norm, tied, position, others, model_of, tokens):
    model = model_of(
        "rope",
        large_weights=False,
        init_std=0.02,  # logits near 0: the first loss is that of a uniform guess
        norm=norm,
        activation=activation,
        qk_norm=qk_norm,
        tie_embeddings=tied,
        norm_position=position,
        num_kv_heads=2,
        dropout=0.1,
        **others,
    ).train()
    row = tokens(4, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(8):
        loss = F.cross_entropy(model(row)[:, :-1].flatten(0, 1), row[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(torch.tensor(29.0).log().item(), abs=0.1)
    assert losses[-1] < losses[0] - 0.3


def test_the_parameters_of_a_decoder_are_counted_by_hand(model_of):
    d, layers, vocab = 48, 2, 29
    matrices = 4 * d * d + 2 * 4 * d * d
    norms = 2 * 2 * d
    expected = vocab * d + layers * (matrices + norms) + 2 * d
    assert sum(p.numel() for p in model_of("none").parameters()) == expected
    untied = model_of("none", tie_embeddings=False)
    assert sum(p.numel() for p in untied.parameters()) == expected + vocab * d
    grouped = model_of("none", num_kv_heads=2)
    assert sum(p.numel() for p in grouped.parameters()) == expected - layers * 2 * d * (d - 2 * 8)


def test_swiglu_has_as_many_parameters_as_gelu():
    for d_model in (48, 64, 192, 768):
        gelu, swiglu = (
            FeedForward(
                ModelConfig(
                    kind="decoder", encoding="none", d_model=d_model, num_layers=1, num_heads=1,
                    activation=activation,
                )
            )
            for activation in ("gelu", "swiglu")
        )  # fmt: skip
        more = sum(p.numel() for p in swiglu.parameters()) - sum(p.numel() for p in gelu.parameters())
        # Its width is rounded up to a multiple of 8.
        assert 0 <= more < 3 * 8 * d_model


@pytest.mark.parametrize(("activation", "gate_of"), [
    ("swiglu", lambda pre: pre * pre.sigmoid()),
    ("geglu", lambda pre: pre * torch.special.ndtr(pre)),
    ("geglu_tanh", lambda pre: pre * (1.5957691216 * (pre + 0.044715 * pre**3)).sigmoid()),
])  # fmt: skip
def test_a_gated_layer_is_the_formula(activation, gate_of):
    config = ModelConfig(
        kind="decoder", encoding="none", d_model=8, num_layers=1, num_heads=1, activation=activation, d_ff=16
    )
    layer, x = FeedForward(config), torch.randn(3, 8)
    gate, up = layer.up.weight[:16], layer.up.weight[16:]
    same(layer(x), (gate_of(x @ gate.T) * (x @ up.T)) @ layer.down.weight.T, atol=1e-6)


def normed(module, x):
    return F.layer_norm(x, x.shape[-1:], module.weight, module.bias)


SUBLAYERS = {
    "pre": lambda x, f, part: x + f(normed(part("norm"), x)),
    "output": lambda x, f, part: x + normed(part("output_norm"), f(x)),
    "both": lambda x, f, part: x + normed(part("output_norm"), f(normed(part("norm"), x))),
    "post": lambda x, f, part: normed(part("residual_norm"), x + f(x)),
}


@pytest.mark.parametrize("position", SUBLAYERS)
def test_norms_stand_where_the_formula_has_them(position, model_of, tokens):
    model = model_of("none", norm_position=position)
    x, *_, wanted = model.hidden(tokens(2, 9), all_layers=True)
    contexts, layer = model.encoding.contexts(2, 9, x.device)[0], model.encoding.layer(0)
    for block in model.blocks:
        for name, more in (("attention", (layer, contexts)), ("feed_forward", ())):
            part = getattr(block, name)
            place = {one: getattr(block, f"{name}_{one}") for one in ("norm", "output_norm", "residual_norm")}
            x = SUBLAYERS[position](x, lambda x, part=part, more=more: part(x, *more), place.get)
    same(wanted, x if position == "post" else normed(model.final_norm, x))
    norms = {"pre": 2, "output": 2, "both": 4, "post": 2}[position] * 2 + (position != "post")
    assert sum(name.endswith("norm.weight") for name, _ in model.named_parameters()) == norms


def test_without_its_first_norm_attention_reads_the_token_vectors(model_of, tokens):
    model, read = model_of("rope", first_norm=False), []
    for block in model.blocks:
        block.attention.register_forward_pre_hook(lambda module, given: read.append(given[0]))
    x = model.hidden(tokens(1, 9), all_layers=True)
    assert torch.equal(read[0], x[0]) and not torch.equal(read[1], x[1])


def test_queries_and_keys_are_normalised_across_heads(model_of, tokens):
    model, given = model_of("none", qk_norm="across_heads", num_kv_heads=2), []
    attention = model.blocks[0].attention
    attention.q_norm.register_forward_hook(lambda module, x, y: given.append((x[0], y)))
    attention.k_norm.register_forward_hook(lambda module, x, y: given.append((x[0], y)))
    model(tokens(1, 5))
    for (x, y), width, gain in zip(given, (48, 16), (attention.q_norm, attention.k_norm), strict=False):
        assert x.shape[-1] == len(gain.weight) == width
        same(y, gain.weight * x / x.square().mean(-1, keepdim=True).add(2.0**-23).sqrt())


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_transform_is_the_formula_in_logits_and_losses(tied, model_of, tokens):
    model = model_of("none", "encoder", head_transform=True, bias="all", tie_embeddings=tied)
    row = tokens(2, 9)
    hidden = model.hidden(row)
    dense, weight = model.head_transform.dense, (model.tokens if tied else model.head).weight
    pre = normed(model.head_transform.norm, F.gelu(hidden @ dense.weight.T + dense.bias))
    logits = pre @ weight.T + model.head_bias
    same(model(row), logits)
    each = F.cross_entropy(logits.flatten(0, 1), row.flatten(), reduction="none")
    same(model(row, targets=row, reduction="none").flatten(), each)
    same(model(row, targets=row), each.sum(), atol=1e-3)


def test_products_with_output_vectors_are_scaled(model_of, tokens):
    model, plain, row = model_of("rope", unembedding_scale=0.3), model_of("rope"), tokens(2, 9)
    same(model(row), 0.3 * plain(row))
    each = F.cross_entropy(model(row).flatten(0, 1), row.flatten(), reduction="none")
    same(model(row, targets=row, reduction="none").flatten(), each)
    same(model(row, targets=row), each.sum(), atol=1e-3)


def test_a_shared_norm_is_two_equal_norms(model_of, tokens):
    shared = model_of("rope", parallel_residual="shared_norm")
    apart, state = model_of("rope", parallel_residual=True), shared.state_dict()
    for name in [name for name in state if "attention_norm" in name]:
        state[name.replace("attention_norm", "feed_forward_norm")] = state[name]
    apart.load_state_dict(state)
    same(shared(tokens(2, 9)), apart(tokens(2, 9)))


def test_token_vectors_are_scaled_before_and_normalised_after_positions_are_added(model_of, tokens):
    options = {"embedding_scale": "sqrt_d_model", "embedding_norm": "with_positions"}
    model, row = model_of("learned", **options), tokens(2, 9)
    positions = model.encoding.slots[0][0].embed(torch.zeros(1, 9, 48), torch.arange(9))
    expected = normed(model.embedding_norm, 48**0.5 * model.tokens(row) + positions)
    same(model.hidden(row, all_layers=True)[0], expected)


@pytest.mark.parametrize(("encoding", "groups"), [("rope", 1), ("alibi", 2), ("shaw", 3), ("fire", 2)])
def test_grouped_heads_are_full_heads_whose_keys_repeat(encoding, groups, model_of, tokens):
    grouped, full = model_of(encoding, num_kv_heads=groups), model_of(encoding)
    state = grouped.state_dict()
    for name in [name for name in state if name.endswith("qkv.weight")]:
        q, k, v = state[name].split([48, groups * 8, groups * 8])
        state[name] = torch.cat(
            (q, *(x.view(groups, 8, 48).repeat_interleave(6 // groups, 0).flatten(0, 1) for x in (k, v)))
        )
    full.load_state_dict(state)
    same(grouped(tokens(2, 12)), full(tokens(2, 12)))


# Dropout, the heads, the tokens.


def test_dropout_is_for_training_only(model_of, tokens):
    model, row = model_of("alibi", dropout=0.2), tokens(2, 12)
    assert torch.equal(model(row), model(row))
    model.train()
    assert not torch.equal(model(row), model(row))
    assert torch.equal(model.eval()(row), model_of("alibi")(row))


def test_tied_embeddings_are_one_matrix(model_of, tokens):
    model = model_of("none")
    hidden = model.hidden(tokens(2, 8))
    same(model(tokens(2, 8)), hidden @ model.tokens.weight.T)
    assert not any(name.startswith("head") for name, _ in model.named_parameters())


def test_logits_of_a_part_are_a_part_of_the_logits(model_of, tokens):
    for model in (
        model_of("alibi"),
        model_of("alibi", tie_embeddings=False),
        model_of("alibi", head="pointer"),
    ):
        hidden = model.hidden(tokens(2, 8))
        same(model.unembed(hidden[:, -1]), model(tokens(2, 8))[:, -1])


def test_logits_are_computed_for_the_wanted_tokens_alone(model_of, tokens, monkeypatch):
    model, ids = model_of("rope"), tokens(2, 9)
    wanted = torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    expected = model(ids)[wanted]
    made = []
    unembed = model.unembed
    monkeypatch.setattr(model, "unembed", lambda hidden: made.append(len(hidden)) or unembed(hidden))
    assert torch.allclose(model(ids, wanted=wanted), expected, atol=1e-6)
    assert made == [int(wanted.sum())] and 0 < made[0] < ids.numel()


# Decoding.


def test_tokens_of_another_shape_are_refused(model_of):
    for shape in ((5,), (0, 5), (2, 0), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"\[batch, length\]"):
            model_of("none")(torch.zeros(shape, dtype=torch.long))


def test_states_of_all_layers_end_in_the_output(model_of, tokens):
    model, row = model_of("rope"), tokens(2, 9)
    states = model.hidden(row, all_layers=True)
    torch.testing.assert_close(states[0], model.tokens(row))
    torch.testing.assert_close(states[-1], model.hidden(row))
    blocks = model.blocks
    contexts = model.encoding.instances_of_layer(model.encoding.contexts(2, 9, row.device), 0)
    torch.testing.assert_close(states[1], blocks[0](states[0], model.encoding.layer(0), contexts))
