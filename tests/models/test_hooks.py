"""Hooks against formulas: the plugins of `tests/encodings/plugins` against their formulas."""

import torch

from zoo.encodings.base import AttentionContext, Size
from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.models.kernels import attend, attention_weights
from zoo.models.scores import ScoreTerms


def attention_of(encoding, q, k, v, **context):
    pos = torch.arange(k.shape[2])
    return attend(
        q,
        k,
        v,
        ScoreTerms(LayerEncodings([encoding]), [AttentionContext(pos, pos, **context)]),
        q.shape[-1] ** -0.5,
    )


def test_a_value_of_an_encoding_that_is_gone_serves_no_other():
    context = AttentionContext(torch.arange(3), torch.arange(3))
    for number in range(20):
        encoding = build_encoding("none", Size(8, 2, 1, 4, True))
        assert context.once(encoding, context.q_pos, lambda _, number=number: number) == number


def test_equal_forget_gates_are_alibi(plugins, model_of, tokens):
    """With log f = -m for every token the sum over j+1..i is -m (i - j)."""
    gated, alibi = model_of("forget_gate"), model_of("alibi")
    slope = alibi.encoding.layer(0).encodings[0].slope
    with torch.no_grad():
        for layer in range(2):
            gate = gated.encoding.layer(layer).encodings[0].gate
            gate.weight.zero_()
            gate.bias.copy_(-torch.expm1(slope).log())  # log sigmoid(b) = -m
    shared = {name: p for name, p in gated.state_dict().items() if not name.startswith("encoding")}
    alibi.load_state_dict(shared)
    torch.testing.assert_close(gated(tokens(2, 14)), alibi(tokens(2, 14)), rtol=0, atol=1e-4)


def test_each_layer_computes_features_of_its_own_tokens(plugins, model_of, tokens):
    """The sum of the gates between key and query, from the hidden states of that very layer."""
    model, row = model_of("forget_gate", num_layers=1), tokens(2, 9)
    seen = {}
    attention, encoding = model.blocks[0].attention, model.encoding.layer(0).encodings[0]
    model.blocks[0].attention_norm.register_forward_hook(lambda *a: seen.update(x=a[-1]))
    attention.register_forward_hook(lambda *a: seen.update(out=a[-1]))
    model(row)
    x = seen["x"]
    log_f = torch.sigmoid(x @ encoding.gate.weight.T + encoding.gate.bias).log()
    q, k, v = (x @ w.T for w in attention.qkv.weight.split(48))
    out = torch.zeros(2, 9, 48)
    for b in range(2):
        for h in range(6):
            at = slice(8 * h, 8 * h + 8)
            for i in range(9):
                logits = []
                for j in range(i + 1):
                    forgotten = log_f[b, j + 1 : i + 1, h].sum()
                    logits.append(q[b, i, at] @ k[b, j, at] / 8**0.5 + forgotten)
                out[b, i, at] = torch.stack(logits).softmax(0) @ v[b, : i + 1, at]
    torch.testing.assert_close(seen["out"], out @ attention.out.weight.T, rtol=0, atol=1e-5)


def test_gates_that_are_all_open_count_tokens(plugins, size_of):
    """With unit gates p_ij = i - j + 1, a table over distances whose last row serves all beyond."""
    encoding = plugins.encodings.load("counted")(size_of(d_model=8, num_heads=2), rows=5, gates="unit")
    q, k, v = torch.randn(3, 1, 2, 9, 4)
    expected = torch.zeros(1, 2, 9, 4)
    for h in range(2):
        for i in range(9):
            logits = [q[0, h, i] @ (k[0, h, j] + encoding.table[min(i - j + 1, 4)]) / 2 for j in range(i + 1)]
            expected[0, h, i] = torch.stack(logits).softmax(0) @ v[0, h, : i + 1]
    torch.testing.assert_close(attention_of(encoding, q, k, v), expected, rtol=0, atol=1e-5)


def test_the_logits_hook_gets_every_added_term(plugins, size_of):
    """The hook is called once, on the scores with the bias, before the mask."""
    encoding = plugins.encodings.load("counted")(size_of(d_model=8, num_heads=2))
    alibi = plugins.encodings.load("alibi")(size_of(d_model=8, num_heads=2))
    given = []
    encoding.logits = lambda logits, q, k, context: given.append(logits) or logits
    q, k, v = torch.randn(3, 1, 2, 9, 4)
    pos = torch.arange(9)
    attend(q, k, v, ScoreTerms(LayerEncodings([alibi, encoding]), [AttentionContext(pos, pos)] * 2), 0.5)
    distance = (pos[:, None] - pos).abs()
    (logits,) = given
    expected = q @ k.transpose(-1, -2) * 0.5 - alibi.slope[:, None, None] * distance
    torch.testing.assert_close(logits, expected)


def test_the_weights_hook_replaces_the_softmax(plugins, size_of):
    """It gets the masked logits of all other hooks; a row may sum to less than one."""
    size = size_of(d_model=8, num_heads=2)
    encoding = plugins.encodings.load("clipped_softmax")(size, cut=0.2)
    alibi = plugins.encodings.load("alibi")(size)
    q, k, v = torch.randn(3, 1, 2, 9, 4)
    pos, out = torch.arange(9), torch.zeros(1, 2, 9, 4)
    for h in range(2):
        for i in range(9):
            seen = range(max(0, i - 4), i + 1)
            logits = torch.stack([q[0, h, i] @ k[0, h, j] / 2 - alibi.slope[h] * (i - j) for j in seen])
            weights = (1.2 * logits.softmax(0) - 0.2).clamp(min=0)
            out[0, h, i] = weights @ v[0, h, seen]
    contexts = [AttentionContext(pos, pos, window=5)] * 2
    terms = ScoreTerms(LayerEncodings([alibi, encoding]), contexts)
    torch.testing.assert_close(attend(q, k, v, terms, 0.5), out, rtol=0, atol=1e-5)
    assert attention_weights(q, k, terms, 0.5).sum(-1).min() < 0.9


def test_positions_are_drawn_in_training_only(plugins, model_of, tokens):
    model, row = model_of({"name": "shaken", "of": "sinusoidal"}), tokens(3, 12)
    plain = model_of("sinusoidal")
    assert torch.equal(model(row), plain(row))
    model.train()
    one, other = model(row), model(row)
    assert (one - other).abs().amax((1, 2)).min() > 1e-3


def test_positions_are_those_of_one_encoding_in_every_layer(plugins, model_of, tokens):
    """RoPE sees one draw in all layers; the sinusoidal encoding sees the default."""
    model = model_of(["sinusoidal", {"name": "shaken", "of": "rope"}], num_layers=3)
    seen, plain = [], []
    sinusoidal, shaken = model.encoding.layer(0).encodings
    embed, rotate = sinusoidal.embed, shaken.of.rotate
    sinusoidal.embed = lambda x, pos: plain.append(pos) or embed(x, pos)
    shaken.of.rotate = lambda q, k, context: (
        seen.extend((context.q_pos, context.k_pos)) or rotate(q, k, context)
    )
    model.train()(tokens(2, 5))
    assert len(seen) == 6
    assert all(torch.equal(pos, seen[0]) for pos in seen)
    assert torch.equal(seen[0].diff(dim=1), torch.ones(2, 4, dtype=torch.long))
    assert seen[0][0, 0] != seen[0][1, 0]
    assert torch.equal(plain[0], torch.arange(5))


def test_positions_given_to_a_model_are_those_of_every_encoding(model_of, tokens):
    model, row, places = model_of(["sinusoidal", "rope", "t5"]), tokens(2, 5), torch.tensor([0, 3, 4, 9, 11])
    apart = torch.zeros(2, 12, dtype=torch.long)
    apart[:, places] = row
    keep = torch.zeros(2, 12, dtype=torch.bool)
    keep[:, places] = True
    in_place = model(apart, keep, positions=torch.arange(12))[:, places]
    torch.testing.assert_close(model(row, positions=places), in_place, rtol=0, atol=1e-5)
