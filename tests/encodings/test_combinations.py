"""Encodings in a list: attention with both, against the two formulas put together in a loop."""

import cmath
import math

import pytest
import torch

from zoo.encodings.bias.alibi import geometric_slopes
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.errors import InputError
from zoo.models.attention import Attention
from zoo.recipe.schema import ModelConfig

B, T, H, D = 2, 9, 4, 8
E = H * D
SLOPES = geometric_slopes(H)


def turned(vector, position):
    """RoPE's half-split pairs as complex numbers, each turned by its own angle."""
    half = D // 2
    pairs = [
        complex(vector[m], vector[m + half]) * cmath.exp(1j * position * 10000 ** (-2 * m / D))
        for m in range(half)
    ]
    return torch.tensor([z.real for z in pairs] + [z.imag for z in pairs])


def rope(qk, _x, _made):
    """The products of rotated queries and keys, in place of the plain ones."""
    q, k = qk
    scores = torch.zeros(B, H, T, T)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
        for j in range(i + 1):
            scores[b, h, i, j] = turned(q[b, h, i].tolist(), i) @ turned(k[b, h, j].tolist(), j)
    return scores / math.sqrt(D)


def product(qk, _x, _made):
    q, k = qk
    return torch.stack([torch.stack([q[b, h] @ k[b, h].T for h in range(H)]) for b in range(B)]) / math.sqrt(
        D
    )


def alibi(_qk, _x, _made):
    distance = torch.tensor([[float(i - j) for j in range(T)] for i in range(T)])
    return torch.stack([-m * distance for m in SLOPES])


def fox(_qk, x, made):
    """log f_(j+1) + ... + log f_i."""
    f = torch.sigmoid(x @ made.gate.weight.T + made.gate.bias)
    scores = torch.zeros(B, H, T, T)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
        for j in range(i + 1):
            scores[b, h, i, j] = sum(math.log(f[b, t, h]) for t in range(j + 1, i + 1))
    return scores


def cope(qk, scores, made):
    """The vector at p_ij, the sum of the gates from j to i, which are those of all scores so far."""
    q, last = qk[0], len(made.table) - 1
    added = torch.zeros(B, H, T, T)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
        gates = torch.sigmoid(scores[b, h, i])
        for j in range(i + 1):
            p = min(sum(gates[j : i + 1].tolist()), last)
            low, high = made.table[math.floor(p)], made.table[min(math.floor(p) + 1, last)]
            added[b, h, i, j] = q[b, h, i] @ (low + (p - math.floor(p)) * (high - low)) / math.sqrt(D)
    return scores + added


# For each list: the terms of the sum, and the encoding that is applied to the sum.
FORMULAS = [
    (["rope", "alibi"], [rope, alibi], None),
    (["alibi", "rope"], [alibi, rope], None),
    (["rope", "fox"], [rope, fox], None),
    (["alibi", "fox"], [alibi, fox, product], None),
    (["alibi", "cope"], [alibi, product], cope),
    (["cope", "alibi"], [alibi, product], cope),
    (["rope", "cope"], [rope], cope),
    (["rope", "alibi", "fox", "cope"], [rope, alibi, fox], cope),
]


@pytest.fixture
def attention():
    """attention(names): one layer's attention, its encodings, and an input [B,T,E]."""

    def attention(names, size):
        encodings = [build_encoding({"name": name}, size) for name in names]
        config = ModelConfig(kind="decoder", encoding=names, d_model=E, num_heads=H, num_layers=1)
        layer = Attention(config)
        with torch.no_grad():
            for module in (layer, *encodings):
                for parameter in module.parameters():
                    parameter.normal_(std=0.25)
        return layer.eval(), encodings, torch.randn(B, T, E)

    return attention


@pytest.mark.parametrize(("names", "summed", "last"), FORMULAS, ids=["+".join(one[0]) for one in FORMULAS])
def test_a_list_is_both_formulas(names, summed, last, attention, size_of, agree):
    layer, encodings, x = attention(names, size_of(d_model=E, num_heads=H, num_layers=1))
    made = {encoding.name: encoding for encoding in encodings}
    pos = torch.arange(T)
    with torch.no_grad():
        got = layer(
            x, LayerEncodings(encodings), [AttentionContext(pos, pos, consecutive=True) for _ in encodings]
        )
        q, k, v = (part.unflatten(-1, (H, D)).transpose(1, 2) for part in layer.qkv(x).chunk(3, -1))
        scores = sum(term((q, k), x, made.get(term.__name__)) for term in summed).expand(B, H, T, T)
        if last is not None:
            scores = last((q, k), scores, made[last.__name__])
        out = torch.zeros(B, T, H, D)
        for b, h, i in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
            out[b, i, h] = scores[b, h, i, : i + 1].softmax(-1) @ v[b, h, : i + 1]
        expected = layer.out(out.flatten(2))
    agree(got, expected, encoding="+".join(names), against="both formulas in a loop")


def test_token_vectors_with_sinusoids_and_a_bias(model_of, tokens, agree):
    """The sum of the two: ALiBi over token vectors with sinusoids added."""
    row = tokens(2, 12)
    both, alone = model_of(["sinusoidal", "alibi"]), model_of("alibi")
    x = alone.tokens(row)
    table = torch.zeros(12, 48)
    for p in range(12):
        for i in range(24):
            angle = p / 10000 ** (2 * i / 48)
            table[p, 2 * i], table[p, 2 * i + 1] = math.sin(angle), math.cos(angle)
    alone.tokens.forward = lambda _: x * math.sqrt(48) + table
    agree(both(row), alone(row), encoding="sinusoidal+alibi", against="ALiBi over vectors with sinusoids")


def test_each_encoding_of_a_list_has_its_own_positions(model_of, tokens, agree):
    """Positions drawn for one are not those of the other."""
    moved = {"name": "shape", "of": "sinusoidal", "evaluation_offset": 50}
    alone, row = model_of(["sinusoidal", "alibi"]), tokens(2, 12)
    expected = alone(row, positions=torch.arange(50, 62))
    agree(model_of([moved, "alibi"])(row), expected, encoding="shape", against="moved beside alibi, unmoved")
    # Next to another absolute encoding the order of the list is kept too.
    unmoved = {"name": "sinusoidal", "token_scale": 1.0}
    differ = model_of([moved, unmoved])(row) - model_of(["sinusoidal", unmoved])(row)
    assert differ.abs().max() > 1e-2


def test_two_rotations_are_refused(model_of):
    for pair in (
        ["rope", "rope"],
        ["rope", "xpos"],
        ["rope", "path"],
        ["pope", "path"],
        ["rope", "deberta"],
        ["rope", "cable"],
        ["rope", {"name": "randomized", "of": "xpos"}],
        [{"name": "cape", "of": "rope"}, {"name": "interleave", "pattern": ["none", "rope"]}],
    ):
        first, second = (one if isinstance(one, str) else one["name"] for one in pair)
        for specs, names in ((pair, (first, second)), (["alibi", *pair[::-1]], (second, first))):
            with pytest.raises(
                InputError, match=f"encodings '{names[0]}' and '{names[1]}' cannot be combined"
            ):
                model_of(specs)
    assert model_of(["rope", {"name": "cable", "scale": "head"}])


def test_two_replacements_of_the_softmax_are_refused(plugins, model_of):
    with pytest.raises(InputError, match="'clipped_softmax' cannot be combined: each decides which weights"):
        model_of(["clipped_softmax", "rope", "clipped_softmax"])


def test_a_bias_without_its_offset_needs_weights_that_ignore_one(plugins, model_of, tokens, monkeypatch):
    """`fire`, `dpb` and `sandwich` leave out a number of each head, which a softmax ignores."""
    assert model_of(["fire", "clipped_softmax"])(tokens(1, 8)).isfinite().all()
    monkeypatch.setattr(plugins.encodings.load("clipped_softmax"), "needs_offset", True)
    for spec in ("fire", "dpb", "sandwich", {"name": "interleave", "pattern": ["none", "fire"]}):
        with pytest.raises(InputError, match="leave out a number that a softmax ignores"):
            model_of([spec, "clipped_softmax"])
        # A learned sink makes up for the number, but not for a multiple that differs from query to query.
        assert model_of([spec, "sink"]) and model_of([spec, "entmax"], logit_scale="log_n")
        with pytest.raises(InputError, match=r"cannot be combined with model\.logit_scale"):
            model_of([spec, "sink"], logit_scale="log_n")
        only_without = {"name": "adaptive", "heads": "without_positions"}
        assert model_of([spec, "sink"], logit_scale=only_without)
