"""CABLE against a loop over its formula, in a decoder and in an encoder."""

import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.contextual.cable import CABLE
from zoo.encodings.stack import LayerEncodings
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

B, H, T, D = 2, 6, 13, 8
E = H * D


def softplus(value):
    return math.log1p(math.exp(value))


def relu(value):
    return max(value, 0.0)


def score_of(encoding, x, **context):
    pos = torch.arange(x.shape[1])
    q = torch.zeros(len(x), H, x.shape[1], D)
    context = {"causal": encoding.size.causal, **context}
    return encoding.score(q, q, AttentionContext(pos, pos, features=encoding.read(x), **context)).detach()


def with_large_weights(encoding):
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    return encoding


@pytest.mark.parametrize(("causal", "weighted", "step", "positive"), [
    (True, True, "softplus", softplus), (True, False, "relu", relu), (False, True, "relu", relu),
    (False, False, "softplus", softplus),
])  # fmt: skip
def test_the_sum_of_steps_between_key_and_query(causal, weighted, step, positive, size_of, agree):
    cable = with_large_weights(CABLE(size_of(causal=causal), weighted=weighted, step=step))
    x = torch.randn(B, T, E)
    expected = torch.zeros(B, H, T, T)
    for b in range(B):
        for h in range(H):
            for i in range(T):
                for j in range(T):
                    if causal and j > i:
                        continue
                    between = range(min(i, j) + 1, max(i, j) + 1)
                    parts = [(cable.steps.weight[h] @ x[b, t] + cable.steps.bias[h]).item() for t in between]
                    distance = sum(positive(part) for part in parts)
                    if weighted:
                        distance *= softplus((cable.gates.weight[h] @ x[b, i] + cable.gates.bias[h]).item())
                    expected[b, h, i, j] = -distance
    got = score_of(cable, x)
    against = f"formula: -g |S_i - S_j|, by a loop ({'encoder' if not causal else 'decoder'})"
    agree(got.tril() if causal else got, expected, encoding="cable", against=against)


@pytest.mark.parametrize(("scale", "divisor", "against"), [
    (None, 1.0, "attention of the authors' src/Cable.py, by a loop"),
    ("none", 1.0, "attention of the authors' src/Cable.py, by a loop"),
    ("model", math.sqrt(E), "attention of the authors' notebook, by a loop"),
    ("head", math.sqrt(D), "attention over sqrt(D), by a loop"),
])  # fmt: skip
@pytest.mark.parametrize("attention_scale", [None, 0.5])
def test_the_divisor_of_the_products(scale, divisor, against, attention_scale, size_of, agree):
    """Attention by the formula: softmax(q_i . k_j / divisor - (S_i - S_j)) v_j; by default as released.

    Another scale of the model's attention changes that of `head` only.
    """
    size = size_of(attention_scale=attention_scale)
    cable = with_large_weights(CABLE(size, **({} if scale is None else {"scale": scale}))).requires_grad_(
        False
    )
    if scale == "head" and attention_scale:
        divisor = 1 / attention_scale
    x, pos, (q, k, v) = torch.randn(B, T, E), torch.arange(T), torch.randn(3, B, H, T, D)
    context = AttentionContext(pos, pos, features=cable.read(x))
    got = attend(
        *cable.rotate(q, k, context),
        v,
        ScoreTerms(LayerEncodings([cable]), [context], content=(q, k)),
        size.scale,
    )
    expected = torch.zeros(B, H, T, D)
    for b in range(B):
        for h in range(H):
            steps = [softplus((cable.steps.weight[h] @ x[b, t] + cable.steps.bias[h]).item()) for t in pos]
            for i in range(T):
                scores = [
                    (q[b, h, i] @ k[b, h, j]).item() / divisor - sum(steps[j + 1 : i + 1])
                    for j in range(i + 1)
                ]
                expected[b, h, i] = torch.tensor(scores).softmax(-1) @ v[b, h, : i + 1]
    agree(got, expected, encoding="cable", against=against)


def test_it_starts_as_released(size_of):
    """Steps from N(0, 0.02) and 0, and no gate of the query."""
    cable = CABLE(size_of())
    assert {name: tuple(p.shape) for name, p in cable.named_parameters()} == {
        "steps.weight": (H, E),
        "steps.bias": (H,),
    }
    assert 0.015 < cable.steps.weight.std() < 0.025
    assert not cable.steps.bias.any()
