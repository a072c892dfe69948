"""DAPE against a loop over the formula, around every bias of the zoo, and the encodings that it refuses."""

import math

import pytest
import torch
import torch.nn.functional as F

from zoo.encodings.bias.alibi import geometric_slopes
from zoo.encodings.context import AttentionContext
from zoo.encodings.contextual import dape as module
from zoo.encodings.contextual.dape import SLOPE
from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

B, H, T, D, HIDDEN = 2, 4, 9, 6, 5


def dape(of="alibi", **options):
    return {"name": "dape", "of": of, **options}


def mlp(encoding, numbers):
    """W2 LeakyReLU(W1 x + b1) + b2 of a list of numbers, unit by unit."""
    hidden = []
    for weights, offset in zip(encoding.inner.weight.tolist(), encoding.inner.bias.tolist(), strict=True):
        total = offset + sum(w * x for w, x in zip(weights, numbers, strict=True))
        hidden.append(total if total > 0 else 0.01 * total)
    return [
        offset + sum(w * x for w, x in zip(weights, hidden, strict=True))
        for weights, offset in zip(encoding.outer.weight.tolist(), encoding.outer.bias.tolist(), strict=True)
    ]


def alibi(_encoding, i, j):
    return [-m * (i - j) for m in geometric_slopes(H)]


def fire_with_leaky_relu(encoding, i, j):
    """FIRE as it is inside the authors' FIRE_C."""
    fire = encoding.of
    c, limit = fire.c.item(), fire.multiple.item() * fire.threshold
    x = math.log(c * (i - j) + 1) / (math.log(c * max(limit, i) + 1) + 1e-6)
    hidden = [
        w * x + b for w, b in zip(fire.hidden.weight[:, 0].tolist(), fire.hidden.bias.tolist(), strict=True)
    ]
    hidden = [u if u > 0 else 0.01 * u for u in hidden]
    return [sum(w * u for w, u in zip(row, hidden, strict=True)) for row in fire.out.weight.tolist()]


LEAKY_FIRE = {"name": "fire", "threshold": 3.0, "activation": "leaky_relu"}


def by_the_formula(encoding, q, k, v, keep, bias_of):
    """softmax(A + B + MLP([A; B])) v, query by query and key by key; B of a distance, or nothing."""
    z = torch.zeros(B, H, T, D)
    for b in range(B):
        for i in range(T):
            seen = [j for j in range(i + 1) if keep[b, j]]
            scores = torch.zeros(H, len(seen))
            for column, j in enumerate(seen):
                a = [(q[b, h, i] @ k[b, h, j]).item() / math.sqrt(D) for h in range(H)]
                # A sequence begins at its first token that is not padding.
                before = (~keep[b, : j + 1]).sum().item()
                bias = bias_of(encoding, i - before, j - before) if bias_of else []
                adapted = mlp(encoding, a + bias)
                for h in range(H):
                    scores[h, column] = a[h] + (bias[h] if bias else 0) + adapted[h]
            for h in range(H):
                for weight, j in zip(scores[h].softmax(-1) if seen else (), seen, strict=True):
                    z[b, h, i] += weight * v[b, h, j]
    return z


@pytest.mark.parametrize(("of", "bias_of", "padded", "against"), [
    ("alibi", alibi, 4, "a loop over A + B + MLP([A; B])"),
    ("none", None, 0, "a loop over A + B + MLP([A; B])"),
    (LEAKY_FIRE, fire_with_leaky_relu, 4, "a loop over A + B + MLP([A; B]), B of the authors' FIRE"),
], ids=["alibi", "none", "fire"])  # fmt: skip
def test_the_formula(of, bias_of, padded, against, size_of, agree):
    encoding = build_encoding(dape(of, hidden=HIDDEN), size_of(d_model=H * D, num_heads=H)).eval()
    with torch.no_grad():
        for name, parameter in encoding.named_parameters():
            if name not in ("of.c", "of.multiple"):
                parameter.normal_()
    q, k, v = torch.randn(3, B, H, T, D)
    keep = torch.arange(T)[None] >= torch.tensor([[0], [padded]])
    pos = (keep.long().cumsum(1) - 1).clamp(min=0)
    context = AttentionContext(pos, pos, keep=keep if padded else None)
    with torch.no_grad():
        got = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context]), D**-0.5)
        expected = by_the_formula(encoding, q, k, v, keep, bias_of)
    real = keep[:, None, :, None]
    agree(got * real, expected * real, encoding="dape", against=against)


def test_scores_far_away_stay_in_float32(size_of):
    """At a distance of 4001 ALiBi's steepest head has -2000.5, which bf16 has not."""
    encoding = build_encoding(dape(), size_of()).bfloat16().eval()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.zero_()
    context = AttentionContext(torch.tensor([4001]), torch.tensor([0, 1]), query_offset=1)
    scores, q = torch.zeros(1, 6, 1, 2), torch.zeros(1, 6, 1, 8)
    with torch.autocast("cpu", torch.bfloat16):
        got = encoding.logits(scores, q, q, context)
    assert got.dtype == torch.float32
    assert got.min() == -2000.5
    assert torch.equal(got[0, :, 0], encoding.of.bias_table(context, 6)[:, 0])


@pytest.mark.parametrize("block", [0, 60], ids=["pair by pair", "12 pairs"])
def test_the_network_in_blocks_of_pairs_and_its_gradients(block, size_of, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", block)
    encoding = build_encoding(dape("alibi", hidden=5), size_of(num_heads=2)).double()
    x = torch.randn(4, 37, dtype=torch.float64, requires_grad=True)

    def exact(x):
        return encoding.outer(F.leaky_relu(encoding.inner(x.T), SLOPE)).T

    torch.testing.assert_close(encoding._change(x), exact(x))
    with torch.no_grad():
        torch.testing.assert_close(encoding._change(x), exact(x))
    weight, given = torch.randn(2, 37, dtype=torch.float64), [x, *encoding.parameters()]
    found, expected = (torch.autograd.grad((f(x) * weight).sum(), given) for f in (encoding._change, exact))
    torch.testing.assert_close(found, expected)
