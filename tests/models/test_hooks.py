"""Hooks against formulas: the plugins of `tests/encodings/plugins` against their formulas."""

import pytest
import torch

import zoo
from zoo.encodings.base import Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.errors import InputError
from zoo.models.attention import encoded
from zoo.models.plans.choose import attend, choose_kernel
from zoo.models.plans.reference import attention_weights
from zoo.models.scores import ScoreTerms


def test_a_value_of_an_encoding_that_is_gone_serves_no_other():
    context = AttentionContext(torch.arange(3), torch.arange(3))
    for number in range(20):
        encoding = build_encoding("none", Size(8, 2, 1, 4, True))
        assert context.once(encoding, context.q_pos, lambda _, number=number: number) == number


@pytest.mark.parametrize("distance_only", [True, False])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_bias_without_a_head_is_that_of_every_head(distance_only, batch, size_of):
    class Same(zoo.Encoding):
        def bias(self, head, q, k):
            return -0.5 * (q - k).abs()

    encoding = Same(size_of())
    encoding.distance_only = distance_only
    pos = torch.arange(5).expand(*batch, 5)
    table = encoding.bias_table(AttentionContext(pos, pos, 0, True, consecutive=not batch), 3)
    assert table.shape == (*batch, 3, 5, 5)
    assert torch.equal(
        table, -0.5 * (pos[..., None, :, None] - pos[..., None, None, :]).abs().expand(table.shape)
    )


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


def in_layer(encodings, q, k, v, x, context):
    """The output of a layer's heads."""
    layer = LayerEncodings(encodings)
    q, k, v, scores = encoded(q, k, v, x, layer, [context] * len(encodings))
    assert choose_kernel("auto", q, scores) == "sdpa"  # a fused kernel
    return layer.output(attend(q, k, v, scores, q.shape[-1] ** -0.5), scores.contexts)


@pytest.mark.parametrize("window", [None, 3])
def test_values_are_turned_by_their_distance_from_the_query(window, plugins, size_of):
    """Two query heads share a key head, and a value turns as many radians as it is tokens away."""
    size = size_of(d_model=8, num_heads=4)
    encoding = plugins.encodings.load("rotated_values")(size).double()
    q, (k, v) = torch.randn(1, 4, 9, 2).double(), torch.randn(2, 1, 2, 9, 2).double()
    pos, out = torch.arange(9), torch.zeros(1, 4, 9, 2).double()
    for h in range(4):
        for i in range(9):
            seen = range(0 if window is None else max(0, i - window + 1), i + 1)
            shares = torch.stack([q[0, h, i] @ k[0, h // 2, j] / 2**0.5 for j in seen]).softmax(0)
            for share, j in zip(shares, seen, strict=True):
                cos, sin = (
                    torch.tensor(float(j - i)).double().cos(), torch.tensor(float(j - i)).double().sin(),
                )  # fmt: skip
                out[0, h, i] += share * torch.stack([cos, -sin, sin, cos]).view(2, 2) @ v[0, h // 2, j]
    found = in_layer([encoding], q, k, v, None, AttentionContext(pos, pos, window=window))
    torch.testing.assert_close(found, out, rtol=0, atol=1e-6)  # angles are float32


def test_values_and_outputs_take_the_features_of_their_tokens(plugins, size_of):
    encoding = plugins.encodings.load("value_shift")(size_of(d_model=8, num_heads=2))
    (q, k, v), x = torch.randn(3, 1, 2, 9, 4), torch.randn(1, 9, 8)
    gate, pos = (x @ encoding.gate.weight.T).sigmoid(), torch.arange(9)
    expected = torch.zeros(1, 2, 9, 4)
    for h in range(2):
        for i in range(9):
            shares = (q[0, h, i] @ k[0, h, : i + 1].T / 2).softmax(0)
            for j in range(i + 1):
                before = v[0, h, j - 1] if j else torch.zeros(4)
                mixed = gate[0, j, h] * before + (1 - gate[0, j, h]) * v[0, h, j]
                expected[0, h, i] += (1 - gate[0, i, h]) * shares[j] * mixed
    found = in_layer([encoding], q, k, v, x, AttentionContext(pos, pos))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_groups_of_heads_have_values_and_outputs_of_their_own(plugins, size_of):
    size, (q, k, v), x = size_of(d_model=12, num_heads=3), torch.randn(3, 1, 3, 9, 4), torch.randn(1, 9, 12)
    spec = {"name": "heads", "of": ["rotated_values", "none", "value_shift"]}
    both, pos = build_encoding(spec, size), torch.arange(9)
    context = AttentionContext(pos, pos)
    found = in_layer([both], q, k, v, x, context)
    for h, part in enumerate(both.of):
        alone = in_layer([part], *(one[:, h : h + 1] for one in (q, k, v)), x, context)
        torch.testing.assert_close(found[:, h : h + 1], alone)


def test_the_token_before_is_of_the_same_sequence_and_document():
    x, none = torch.arange(1.0, 13).view(2, 6, 1), 0.0
    pos = torch.arange(6)
    keep = torch.tensor([[False, False, True, True, True, True], [True, True, True, True, False, False]])
    documents = torch.tensor([[0, 0, 2, 2, 2, 5], [0, 1, 1, 1, 4, 4]])
    plain = [[none, 1, 2, 3, 4, 5], [none, 7, 8, 9, 10, 11]]
    padded = [[none, none, none, 3, 4, 5], [none, 7, 8, 9, 10, none]]
    apart = [[none, 1, none, 3, 4, none], [none, none, 8, 9, none, 11]]
    for masks, rows in (({}, plain), ({"keep": keep}, padded), ({"documents": documents}, apart)):
        context, expected = AttentionContext(pos, pos, **masks), torch.tensor(rows)
        assert torch.equal(context.previous(x)[..., 0], expected)
        assert torch.equal(context.previous(x[..., 0], 1), expected)
        assert torch.equal(context.previous(x[:, None].expand(-1, 3, -1, -1))[:, 2, :, 0], expected)
        for first in range(1, 6):  # those of the last queries alone
            last = AttentionContext(pos[first:], pos, first, **masks)
            own = last.previous(x[:, first:], 1, x[:, first - 1 : first])
            assert torch.equal(own[..., 0], expected[:, first:])


def test_an_output_by_position_takes_no_sink_tokens(plugins, model_of):
    """A query would stand at one position to the sinks and at another to its window."""
    model_of("value_shift", window=4, sink_tokens=2)
    with pytest.raises(InputError, match=r"'rotated_values' .* model\.sink_tokens"):
        model_of("rotated_values", window=4, sink_tokens=2)
