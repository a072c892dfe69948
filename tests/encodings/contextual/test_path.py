"""PaTH against a loop that applies one reflection at a time."""

from dataclasses import replace

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.contextual import path
from zoo.encodings.contextual.fox import FoX
from zoo.encodings.contextual.path import PaTH, products_with_kept
from zoo.encodings.stack import LayerEncodings
from zoo.models.cache import LayerCache
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

B, H, D = 2, 6, 8
E = H * D


def reflections(encoding, x, keep):
    """w [B,H,S,D] and beta [B,H,S], a token at a time, as section 3 and the authors' layer have them."""
    kernel = encoding.taps.shape[-1]
    w, beta = torch.zeros(B, H, x.shape[1], D), torch.zeros(B, H, x.shape[1])
    for b in range(B):
        low = [encoding.up @ (encoding.down @ x[b, t]) for t in range(x.shape[1])]
        for t in range(x.shape[1]):
            if not keep[b, t]:
                continue
            mixed = torch.zeros(E)
            for back in range(kernel):
                if t >= back and keep[b, t - back]:
                    mixed += encoding.taps[:, 0, kernel - 1 - back] * low[t - back]
            for h, part in enumerate((mixed * mixed.sigmoid()).view(H, D)):
                w[b, h, t] = part / (part.norm() ** 2 + 1e-6) ** 0.5
            beta[b, :, t] = 2 * (encoding.strength.weight @ x[b, t] + encoding.strength.bias).sigmoid()
    return w, beta


def products(q, k, w, beta):
    """k_j . H_(j+1) ... H_i q_i: from a query back to each key, H_i first."""
    length = k.shape[2]
    scores = torch.zeros(*q.shape[:2], length, length)
    for i in range(length):
        turned = q[:, :, i]
        for j in range(i, -1, -1):
            scores[:, :, i, j] = (turned * k[:, :, j]).sum(-1)
            along = (turned * w[:, :, j]).sum(-1)
            turned = turned - (beta[:, :, j] * along)[..., None] * w[:, :, j]
    return scores


def sizes(length):
    w = torch.nn.functional.normalize(torch.randn(B, H, length, D), dim=-1)
    return torch.randn(B, H, length, D), torch.randn(B, H, length, D), w, 2 * torch.rand(B, H, length)


def test_the_product_of_all_reflections_between(agree):
    for length in (1, 2, 31, 32, 33, 150):
        q, k, w, beta = sizes(length)
        got, _ = products_with_kept(k[:, :, :0], q, k, w, beta)
        expected = products(q, k, w, beta)
        agree(got.tril(), expected.tril(), encoding="path", against="formula: one H at a time, by a loop")


def test_full_reflections_of_the_same_token_stay_bounded():
    """beta = 2 and one w for all: H H = 1, so that scores of even distances are plain products."""
    q, k, w, _ = (x.double() for x in sizes(200))
    w = torch.nn.functional.normalize(w[:, :, :1].expand_as(w), dim=-1)
    changed = products_with_kept(k[:, :, :0], q, k, w, torch.full_like(q[..., 0], 2.0))[0] - q @ k.mT
    even = (torch.arange(200)[:, None] - torch.arange(200)).remainder(2) == 0
    assert changed.tril()[..., even].abs().max() < 1e-10


@pytest.fixture
def with_large_weights(size_of):
    def with_large_weights(**options):
        encoding = PaTH(size_of(), **options)
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return encoding.requires_grad_(False)

    return with_large_weights


@pytest.mark.parametrize(
    ("options", "padded"),
    [
        ({}, range(0)),
        ({}, range(20, 25)),
        ({"rank": 5, "kernel": 1}, range(7)),
        ({"kernel": 4}, range(7)),
        ({"kernel": 4}, range(20, 25)),
    ],
    ids=["whole", "padded between", "one tap, padded before", "padded before", "four taps, padded between"],
)
def test_the_layer_from_hidden_states_to_scores(options, padded, with_large_weights, agree):
    encoding, length = with_large_weights(**options), 80
    x = torch.randn(B, length, E)
    q, k, *_ = sizes(length)
    pos = torch.arange(length)
    keep = torch.ones(B, length, dtype=torch.bool)
    keep[1, list(padded)] = False
    context = AttentionContext(pos, pos, keep=keep if padded else None, features=encoding.read(x))
    got = encoding.score(q, k, context)
    expected = products(q, k, *reflections(encoding, x, keep)) * D**-0.5
    agree(got.tril(), expected.tril(), encoding="path", against="formula: layer and scores, by a loop")


@pytest.mark.parametrize(("scaled", "against"), [
    (True, "PaTH-FoX: a token at a time, by a loop"),
    (False, "both formulas in a loop"),
], ids=["as PaTH-FoX", "as FoX"])  # fmt: skip
def test_with_the_forget_gate(scaled, against, with_large_weights, size_of, agree):
    """PaTH-FoX adds the gates to the products before both are divided by sqrt(D), FoX after."""
    length = 40
    fox = FoX(size_of(), scaled=scaled).requires_grad_(False)
    for parameter in fox.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    encodings, pos = [with_large_weights(), fox], torch.arange(length)
    x, v = torch.randn(B, length, E), torch.randn(B, H, length, D)
    q, k, *_ = sizes(length)
    contexts = [AttentionContext(pos, pos, features=encoding.read(x)) for encoding in encodings]
    scores = ScoreTerms(LayerEncodings(encodings), contexts, content=(q, k))
    got = attend(*LayerEncodings(encodings).rotate(q, k, contexts), v, scores, D**-0.5)

    w, beta = reflections(encodings[0], x, torch.ones(B, length, dtype=torch.bool))
    forget = torch.log(1 / (1 + torch.exp(-(x @ fox.gate.weight.T + fox.gate.bias))))
    expected = torch.zeros(B, H, length, D)
    for i in range(length):
        turned, gates, scores = q[:, :, i], torch.zeros(B, H), []
        for j in range(i, -1, -1):
            product = (turned * k[:, :, j]).sum(-1)
            scores.append((product + gates) / D**0.5 if scaled else product / D**0.5 + gates)
            turned = turned - (beta[:, :, j] * (turned * w[:, :, j]).sum(-1))[..., None] * w[:, :, j]
            gates = gates + forget[:, j]
        weights = torch.stack(scores[::-1], -1).softmax(-1)
        expected[:, :, i] = (weights[..., None] * v[:, :, : i + 1]).sum(-2)
    agree(got, expected, encoding="path+fox", against=against)


def test_the_size_of_blocks_changes_nothing(monkeypatch):
    at = [x.double().requires_grad_() for x in sizes(100)]
    earlier = torch.randn(B, H, 11, D, dtype=torch.double, requires_grad=True)
    results = []
    for block in (1, 7, 32, 100):
        monkeypatch.setattr(path, "BLOCK", block)
        out, keys = products_with_kept(earlier, *at)
        out = out.tril(11)
        total = out.square().sum() + keys.sin().sum()
        results.append((out, keys, *torch.autograd.grad(total, (*at, earlier))))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("steps", [(150,), (1,) * 40, (70, 1, 1, 40, 1, 33)], ids=str)
def test_keys_kept_from_step_to_step_give_the_products_of_all(steps, with_large_weights, monkeypatch):
    """No product with an earlier key is computed again."""
    encoding, length = with_large_weights(), sum(steps)
    q, k, *_ = sizes(length)
    pos = torch.arange(length)
    context = AttentionContext(pos, pos, features=encoding.read(torch.randn(B, length, E)))
    whole, kept, start = encoding.score(q, k, context), LayerCache(), 0
    monkeypatch.setattr(path, "products_back_to", None)
    for step in steps:
        stop = start + step
        part = replace(context.queries(start, stop), layer_cache=kept)
        with torch.no_grad():
            rows = encoding.score(q[:, :, start:stop], k[:, :, :stop], part)
        seen = part.allowed()
        torch.testing.assert_close(rows * seen, whole[:, :, start:stop, :stop] * seen, rtol=0, atol=2e-5)
        start = stop


def test_it_starts_as_published(size_of):
    """The authors' model draws every weight again after its layers are made, the taps' too."""
    encoding = PaTH(size_of(d_model=192))
    assert not encoding.strength.bias.any()
    for weight in (encoding.down, encoding.up, encoding.taps, encoding.strength.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.2)
