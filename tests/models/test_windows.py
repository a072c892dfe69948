"""A window for each layer: layer l has window[l % length of the pattern]."""

import math

import pytest
import torch

from zoo.models.plans import fused
from zoo.recipe import resolve

PATTERN = (3, None, 5)


def same(actual, expected, atol=1e-5):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@pytest.mark.parametrize(("kind", "padded"), [("decoder", True), ("encoder", True), ("encoder", False)])
def test_each_layer_looks_as_far_as_its_own_window(kind, padded, model_of, tokens):
    """The output of each layer equals a loop over its queries."""
    model, row = model_of("none", kind, num_layers=4, window=PATTERN), tokens(2, 12)
    keep = torch.arange(12) >= torch.tensor([[0], [4 if padded else 0]])
    given, made = [], []
    for block in model.blocks:
        block.attention_norm.register_forward_hook(lambda *a: given.append(a[-1]))
        block.attention.register_forward_hook(lambda *a: made.append(a[-1]))
    model(row, keep if padded else None)
    for layer, window in enumerate((3, None, 5, 3)):
        attention = model.blocks[layer].attention
        q, k, v = (given[layer] @ w.T for w in attention.qkv.weight.split(48))
        out = torch.zeros(2, 12, 48)
        for b in range(2):
            for i in range(12):
                seen = [
                    j
                    for j in range(12)
                    if keep[b, j]
                    and (kind == "encoder" or j <= i)
                    and (window is None or abs(i - j) < window)
                ]
                for h in range(6) if seen else ():
                    at = slice(8 * h, 8 * h + 8)
                    logits = k[b, seen][:, at] @ q[b, i, at] / math.sqrt(8)
                    out[b, i, at] = logits.softmax(0) @ v[b, seen][:, at]
        same(made[layer], out @ attention.out.weight.T)


def test_a_pattern_of_one_is_a_window_for_all(model_of, tokens, recipe):
    row = tokens(2, 12)
    one, all_, none = (model_of("alibi", window=w) for w in ((4,), 4, (None, None)))
    assert torch.equal(one(row), all_(row)) and not torch.equal(one(row), none(row))
    assert torch.equal(none(row), model_of("alibi")(row))
    # One spelling each, so that two recipes that mean the same also compare equal.
    for given, kept in (("[64]", 64), ("[64, 64]", 64), ("[null]", None), ("[64, null]", [64, None])):
        chosen = recipe("text", "model.num_layers=4", f"model.window={given}")
        assert chosen.as_dict()["model"]["window"] == kept
        assert resolve(chosen.as_dict()) == chosen
    twice = recipe("text", "model.num_layers=4", "model.window=[8, null, 8, null]")
    assert twice == recipe("text", "model.num_layers=4", "model.window=[8, null]")


def test_a_layer_without_one_needs_no_mask(model_of, tokens, monkeypatch):
    made, attend = [], fused.Line.attend
    monkeypatch.setattr(fused.Line, "attend", lambda *at: made.append(at[4].context.window) or attend(*at))
    model = model_of("rope", num_layers=4, window=PATTERN)
    model(tokens(1, 12))
    assert made == [3, 5, 3]
    made.clear()
    model(tokens(1, 4))
    assert made == [3, 3]


def test_layers_with_one_window_share_one_mask(model_of, tokens, monkeypatch):
    made, line = [], fused.line_of
    monkeypatch.setattr(fused, "line_of", lambda s, *at: made.append(s.context.window) or line(s, *at))
    model_of("alibi", num_layers=6, window=PATTERN)(tokens(1, 12))
    assert made == [3, None, 5]
