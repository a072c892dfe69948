"""Hooks against formulas: the plugins of `tests/encodings/plugins` against their formulas."""

import torch

from zoo.encodings.base import Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.models.kernels import attend, attention_weights
from zoo.models.scores import ScoreTerms


def test_a_value_of_an_encoding_that_is_gone_serves_no_other():
    context = AttentionContext(torch.arange(3), torch.arange(3))
    for number in range(20):
        encoding = build_encoding("none", Size(8, 2, 1, 4, True))
        assert context.once(encoding, context.q_pos, lambda _, number=number: number) == number


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
