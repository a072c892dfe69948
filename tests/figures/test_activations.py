"""The figures about a model's inside against its table of attention weights and its residual stream."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from zoo.figures import activations
from zoo.figures.activations import bin_edges, observe

TRAINED, LENGTH = 16, 29
CASES = [
    ("rope", "encoder", {}), ("alibi", "encoder", {"window": [5, None]}), ("learned", "decoder", {}),
    ("cope", "decoder", {}), ("t5", "decoder", {"num_kv_heads": 2, "window": [5, None]}),
    ("none", "decoder", {"logit_scale": "scalable_softmax"}), ("clipped_softmax", "decoder", {}),
]  # fmt: skip


def plain(model, tokens, bins):
    """The same from the table of all weights, by loops."""
    weights = model.attention(tokens).double().numpy()[:, 0]  # [L,H,T,T]
    length = tokens.shape[1]
    layers, heads = weights.shape[:2]
    found = {name: np.full((layers, heads, len(bins) - 1), np.nan) for name in ("entropy", "first")}
    found["attention"] = np.full((layers, heads, 2, len(bins) - 1), np.nan)
    windows = [window or length for window in model.windows]
    for layer in range(layers):
        sees = [
            [abs(q - k) < windows[layer] and (k <= q or not model.causal) for k in range(length)]
            for q in range(length)
        ]
        for index, (low, high) in enumerate(pairwise(bins)):
            own = weights[layer][:, low:high]
            found["first"][layer, :, index] = own[..., 0].mean(-1)
            # Of the shares of the keys: the weights of a query may sum to less than one.
            own = own / own.sum(-1, keepdims=True)
            entropy = -np.where(own > 0, own * np.log(np.maximum(own, 1e-300)), 0).sum(-1)
            found["entropy"][layer, :, index] = entropy.mean(-1)
            for side, queries in enumerate((range(TRAINED), range(TRAINED, length))):
                pairs = [
                    weights[layer][:, q, k]
                    for q in queries
                    for k in range(length)
                    if low <= abs(q - k) < high and sees[q][k]
                ]
                if pairs:
                    found["attention"][layer, :, side, index] = np.mean(pairs, 0)
    return found


@pytest.mark.parametrize("name, kind, options", CASES)
def test_it_is_what_the_table_of_all_weights_says(
    plugins, name, kind, options, model_of, tokens, monkeypatch
):
    # Blocks of three queries: their seams are where such a computation breaks.
    monkeypatch.setattr(activations, "BLOCK_ELEMENTS", 3 * 6 * LENGTH)
    length = TRAINED if name == "learned" else LENGTH
    model = model_of(name, kind, **options)
    row = tokens(2, length)
    found = observe(model, {"tokens": row}, TRAINED)
    for window in range(2):
        expected = plain(model, row[window : window + 1], found.bins)
        for key, value in expected.items():
            np.testing.assert_allclose(getattr(found, key)[window], value, atol=2e-6, err_msg=key)
    assert np.isnan(found.loss).all() and found.length == length


def test_even_attention_has_all_the_entropy_there_can_be(model_of, tokens):
    model = model_of("none")
    for block in model.blocks:
        torch.nn.init.zeros_(block.attention.qkv.weight)
    found = observe(model, {"tokens": tokens(1, LENGTH)}, TRAINED)
    assert np.allclose(found.entropy[0, 0, 0], found.most, atol=1e-6)
    assert found.most[found.bins[:-1] == 3] == pytest.approx(math.log(4))
    assert np.allclose(found.first[0, :, :, 3], 1 / 4)


def test_loss_and_norms_are_those_of_the_forward_pass(model_of, tokens):
    model = model_of("rope")
    row, targets = tokens(1, LENGTH), tokens(1, LENGTH)
    targets[0, 3:9] = -100
    entering = []
    model.blocks[1].register_forward_pre_hook(lambda module, given: entering.append(given[0]))
    found = observe(model, {"tokens": row, "targets": targets}, TRAINED)
    nats = F.cross_entropy(model(row)[0], targets[0], reduction="none", ignore_index=-100).detach().numpy()
    for index, (low, high) in enumerate(pairwise(found.loss_bins)):
        scored = nats[low:high][targets[0, low:high].numpy() >= 0]
        expected = scored.mean() if len(scored) else np.nan
        np.testing.assert_allclose(found.loss[0, index], expected, rtol=1e-4)
    for index, (low, high) in enumerate(pairwise(found.bins)):
        norm = entering[0][0, low:high].norm(dim=-1).mean().item()
        assert found.norm[0, 1, index] == pytest.approx(norm, rel=1e-5)
    assert found.norm.shape == (1, 3, len(found.bins) - 1)


def test_a_pointer_loses_where_its_answer_is(model_of, tokens):
    model = model_of("alibi", "encoder", head="pointer")
    row = tokens(3, LENGTH)
    answer = torch.tensor([2, 5, 20])
    found = observe(model, {"tokens": row, "answer": answer}, TRAINED)
    expected = F.cross_entropy(model(row), answer, reduction="none").detach().numpy()
    at = np.searchsorted(found.loss_bins, answer.numpy(), side="right") - 1
    np.testing.assert_allclose(found.loss[range(3), at], expected, rtol=1e-4)
    assert np.isfinite(found.loss).sum() == 3


def test_bins_hold_each_number_once():
    for length, more in product((1, 2, 9, 300), ((), (16, 2))):
        bins = bin_edges(length, *more)
        assert bins[0] == 0 and bins[-1] == length and (np.diff(bins) > 0).all()
