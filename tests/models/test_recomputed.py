"""Attention whose tables are not kept for the backward pass equals attention whose tables are kept."""

import pytest
import torch

from zoo.contract.subject import HEADS
from zoo.encodings.base import Encoding
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings
from zoo.models.plans import choose, recomputed
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

LENGTH, BLOCKS = 141, 3
"""A block has 64 queries, the last 13."""
# By distance no table is made: those encodings need padding to take this path.
RECOMPUTED = [
    ("t5", "decoder", 7, {}),
    ("t5", "encoder", 7, {}),
    ("fox", "decoder", 7, {}),
    ("cable", "encoder", 7, {}),
    ("fire", "decoder", 0, {}),
    ("randomized", "encoder", 7, {}),
    ("cope", "decoder", 0, {}),
    ("dape", "decoder", 7, {}),
    ("shaw", "encoder", 0, {}),
    ("deberta", "decoder", 7, {}),
    ("transformer_xl", "decoder", 0, {}),
    ("path", "decoder", 7, {}),
    ("fire", "decoder", 0, {"window": 9}),
    ("path", "decoder", 0, {"window": 9}),
    ("cope", "decoder", 0, {"logit_scale": "scalable_softmax"}),
    ("deberta", "decoder", 0, {"logit_scale": "scalable_softmax"}),
    ("fire", "decoder", 0, {"num_kv_heads": 2}),
    ("cope", "decoder", 0, {"num_kv_heads": 2}),
    ("deberta", "decoder", 0, {"qk_norm": True}),
    ("path", "decoder", 0, {"qk_norm": True}),
]


@pytest.fixture
def computed_again(monkeypatch):
    """Once called, no table is kept. Returns the outputs of all blocks from then on, in both passes."""
    outputs, attend = [], recomputed.attend

    def watched(run, *given):
        return attend(lambda *of: outputs.append(run(*of)) or outputs[-1], *given)

    def computed_again():
        monkeypatch.setattr(recomputed, "attend", watched)
        monkeypatch.setattr(choose, "MOST_KEPT_ELEMENTS", 0)
        monkeypatch.setattr(choose, "BLOCK_ELEMENTS", 0)
        outputs.clear()
        return outputs

    return computed_again


def with_gradients(model, row, keep, low=False):
    torch.manual_seed(0)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        out = model(row, keep)
    out = out if keep is None else out[keep]
    out.float().square().mean().backward()
    return out, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same_gradients(gradients, expected):
    assert gradients.keys() == expected.keys()
    for parameter, gradient in gradients.items():
        largest = expected[parameter].abs().max().item()
        torch.testing.assert_close(gradient, expected[parameter], rtol=1e-3, atol=1e-4 * largest + 1e-8)


@pytest.mark.parametrize(("name", "kind", "padded", "config"), RECOMPUTED, ids=str)
def test_output_and_gradients_are_the_same(
    name, kind, padded, config, spec_of, model_of, tokens, computed_again
):
    model, row = model_of(spec_of(name), kind, length=LENGTH, **config), tokens(2, LENGTH)
    keep = torch.arange(LENGTH) >= torch.tensor([[0], [padded]]) if padded else None
    out, expected = with_gradients(model, row, keep)
    blocks = computed_again()
    got, gradients = with_gradients(model, row, keep)
    # Of two layers, forward and backward.
    assert len(blocks) == 4 * BLOCKS
    torch.testing.assert_close(got, out, rtol=1e-4, atol=1e-4)
    same_gradients(gradients, expected)


@pytest.mark.parametrize("spec", ["fire", "path"])
def test_under_autocast_both_passes_compute_the_same(spec, model_of, tokens, computed_again):
    model, row = model_of(spec, length=LENGTH, num_layers=1), tokens(2, LENGTH)
    exact, expected = (with_gradients(model, row, None, low)[1] for low in (False, True))
    outputs = computed_again()
    _, gradients = with_gradients(model, row, None, low=True)
    assert len(outputs) == 2 * BLOCKS
    assert all(map(torch.equal, outputs[:BLOCKS], outputs[BLOCKS:]))

    def error(gradients):
        return sum(((gradients[n] - exact[n]).norm() / exact[n].norm()).item() for n in exact) / len(exact)

    # Gradients are as exact as without blocks.
    assert error(gradients) < 1.3 * error(expected)


@pytest.mark.parametrize(("spec", "tables"), [("fire", 1), ("deberta", 2), ("cope", 2)])
def test_tables_up_to_a_limit_are_kept(spec, tables, model_of, tokens, computed_again, monkeypatch):
    """A bias of positions alone is one table for all sequences; other scores have one of each sequence."""
    model, row, blocks = model_of(spec, length=LENGTH, num_layers=1), tokens(2, LENGTH), computed_again()
    limit = tables * HEADS * LENGTH**2
    for most, expected in ((limit, 0), (limit - 1, BLOCKS)):
        monkeypatch.setattr(choose, "MOST_KEPT_ELEMENTS", most)
        model(row)
        assert len(blocks) == expected


def test_frozen_parameters_get_no_gradient(model_of, tokens, computed_again):
    model, row = model_of("fire", length=LENGTH), tokens(2, LENGTH)
    frozen = [name for name, _ in model.named_parameters() if name.endswith((".c", "qkv.weight"))]
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    _, expected = with_gradients(model, row, None)
    blocks = computed_again()
    _, gradients = with_gradients(model, row, None)
    assert len(blocks) == 4 * BLOCKS
    assert not gradients.keys() & set(frozen)
    same_gradients(gradients, expected)


def test_both_passes_draw_the_same_random_numbers(size_of, computed_again):
    """With weights dropped at random, the output is linear in the values and the gradient is its slope."""

    class Dropped(Encoding):
        def logits(self, logits, q, k, context):
            return torch.nn.functional.dropout(logits, 0.5)

    computed_again()
    pos, encoding = torch.arange(LENGTH), Dropped(size_of())
    q, k, v, step = torch.randn(4, 1, 6, LENGTH, 4, dtype=torch.double)
    of_loss = torch.randn_like(v)

    def loss(v):
        torch.manual_seed(1)
        return (
            attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [AttentionContext(pos, pos)]), 0.5)
            * of_loss
        ).sum()

    v.requires_grad_()
    first = loss(v)
    state = torch.get_rng_state()
    (gradient,) = torch.autograd.grad(first, v)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        plain = v.detach()
    moved = loss((plain + step).requires_grad_())
    torch.testing.assert_close((moved - first).detach(), (gradient * step).sum())


def test_the_backward_pass_runs_hooks_under_the_same_autocast(size_of, computed_again):
    dtypes = []

    class Multiplied(Encoding):
        def logits(self, logits, q, k, context):
            products = q.float() @ k.float().mT
            dtypes.append(products.dtype)
            return logits + products

    computed_again()
    pos, encoding = torch.arange(LENGTH), Multiplied(size_of())
    q, k, v = torch.randn(3, 1, 6, LENGTH, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [AttentionContext(pos, pos)]), 0.5)
    out.sum().backward()
    assert dtypes == 2 * BLOCKS * [torch.bfloat16]


def test_gradients_reach_learned_positions_and_values_shared_by_layers(size_of, tokens, computed_again):
    class Stretched(Encoding):
        def __init__(self, size):
            super().__init__(size)
            self.stretch = torch.nn.Parameter(torch.tensor(1.5))
            self.slope = torch.nn.Parameter(torch.tensor(0.3))

        def positions(self, ids, batch):
            return ids * self.stretch

        def score(self, q, k, context):
            slope = context.once(self, context.k_pos, lambda _: self.slope.exp())
            return -slope * (context.q_pos[:, None] - context.k_pos).square() / 100

    encoding, keep = Stretched(size_of()), torch.ones(1, LENGTH, dtype=torch.bool)
    q, k, v = torch.randn(3, 1, 6, LENGTH, 4)

    def gradients():
        pos, shared = encoding.positions(torch.arange(LENGTH), 1), {}
        scores = ScoreTerms(
            LayerEncodings([encoding]), [AttentionContext(pos, pos, keep=keep, shared=shared)]
        )
        out = attend(q, k, v, scores, 0.5) + attend(v, k, q, scores, 0.5)
        return torch.autograd.grad((out * v).sum(), [encoding.stretch, encoding.slope])

    expected = gradients()
    assert all(expected)
    blocks = computed_again()
    torch.testing.assert_close(gradients(), expected, rtol=1e-3, atol=1e-4)
    assert len(blocks) == 4 * BLOCKS
