"""Blocks that the backward pass computes again give the same numbers; a law measures their memory."""

import pytest
import torch

from zoo.encodings.base import Encoding, Span
from zoo.encodings.stack import View
from zoo.models import kernels, recomputed
from zoo.models.kernels import attend
from zoo.models.scores import Scores
from zoo.registry import encodings

TRAINED = [name for name in encodings.names() if not encodings.describe(name).replaces]
DECODERS = [name for name in TRAINED if encodings.describe(name).decoder]
ENCODERS = [name for name in TRAINED if encodings.describe(name).encoder]
LENGTH, ROWS = 40, 16


@pytest.fixture
def computed_again(monkeypatch):
    """Once called: no table is kept, and a block has 16 queries. Returns the blocks since then."""
    blocks, of_one = [], recomputed._Work.output
    monkeypatch.setattr(
        recomputed._Work, "output", lambda work, *of: blocks.append(of[-1]) or of_one(work, *of)
    )

    def computed_again():
        monkeypatch.setattr(kernels, "MOST_KEPT_ELEMENTS", 0)
        monkeypatch.setattr(kernels, "BLOCK_ELEMENTS", 0)
        monkeypatch.setattr(kernels, "FUSED_BLOCKS", 1)
        monkeypatch.setattr(kernels, "FEWEST_TRAINING_ROWS", ROWS)
        blocks.clear()
        return blocks

    return computed_again


def with_gradients(model, row, keep, low=False):
    torch.manual_seed(0)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        out = model(row, keep)
    out = out if keep is None else out[keep]
    out.float().square().mean().backward()
    return out, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("padded", [False, True], ids=["plain", "padded"])
@pytest.mark.parametrize(
    ("name", "kind"), [(n, "decoder") for n in DECODERS] + [(n, "encoder") for n in ENCODERS]
)
def test_output_and_gradients_are_the_same(name, kind, padded, spec_of, model_of, tokens, computed_again):
    model, row = model_of(spec_of(name), kind, length=LENGTH), tokens(2, LENGTH)
    keep = torch.arange(LENGTH) >= torch.tensor([[0], [7]]) if padded else None
    out, expected = with_gradients(model, row, keep)
    blocks = computed_again()
    got, gradients = with_gradients(model, row, keep)
    assert not blocks or {block.start for block in blocks} == {0, ROWS, 2 * ROWS}
    torch.testing.assert_close(got, out, rtol=1e-4, atol=1e-4)
    assert gradients.keys() == expected.keys()
    for parameter, gradient in gradients.items():
        largest = expected[parameter].abs().max().item()
        torch.testing.assert_close(gradient, expected[parameter], rtol=1e-3, atol=1e-4 * largest + 1e-8)


@pytest.mark.parametrize("spec", ["fire", "cope", "deberta", "path"])
@pytest.mark.parametrize(
    "config",
    [{"window": 9}, {"logit_scale": "scalable_softmax"}, {"num_kv_heads": 2}, {"qk_norm": True}],
    ids=str,
)
def test_so_they_are_in_other_models(spec, config, model_of, tokens, computed_again):
    model, row = model_of(spec, length=LENGTH, **config), tokens(2, LENGTH)
    out, expected = with_gradients(model, row, None)
    blocks = computed_again()
    got, gradients = with_gradients(model, row, None)
    assert blocks
    torch.testing.assert_close(got, out, rtol=1e-4, atol=1e-4)
    for parameter, gradient in gradients.items():
        largest = expected[parameter].abs().max().item()
        torch.testing.assert_close(gradient, expected[parameter], rtol=1e-3, atol=1e-4 * largest + 1e-8)


@pytest.mark.parametrize("spec", ["fire", "cope", "deberta", "path"])
def test_autocast_is_that_of_the_forward_pass(spec, model_of, tokens, computed_again):
    model, row = model_of(spec, length=LENGTH), tokens(2, LENGTH)
    _, exact = with_gradients(model, row, None)
    results = [with_gradients(model, row, None, low=True)[1]]
    computed_again()
    results.append(with_gradients(model, row, None, low=True)[1])

    def error(gradients):
        return sum(((gradients[n] - exact[n]).norm() / exact[n].norm()).item() for n in exact) / len(exact)

    # As far from those in float32 as without.
    usual, got = map(error, results)
    assert 0.5 * usual < got < 1.3 * usual


def test_frozen_parameters_get_no_gradient(model_of, tokens, computed_again):
    model, row = model_of("fire", length=LENGTH), tokens(2, LENGTH)
    frozen = [name for name, _ in model.named_parameters() if name.endswith((".c", "qkv.weight"))]
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    _, expected = with_gradients(model, row, None)
    assert computed_again() == []
    _, gradients = with_gradients(model, row, None)
    assert gradients.keys() == expected.keys()
    assert not gradients.keys() & set(frozen)
    for parameter, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[parameter], rtol=1e-3, atol=1e-5)


def test_chance_is_the_same_in_both_passes(size_of, computed_again):
    """With weights that are dropped at random, the output is linear in the values: the gradient says how."""

    class Dropped(Encoding):
        def logits(self, logits, q, k, span):
            return torch.nn.functional.dropout(logits, 0.5)

    computed_again()
    pos, encoding = torch.arange(LENGTH), Dropped(size_of())
    q, k, v, step = torch.randn(4, 1, 6, LENGTH, 4, dtype=torch.double)
    of_loss = torch.randn_like(v)

    def loss(v):
        torch.manual_seed(1)
        return (attend(q, k, v, Scores(View([encoding]), [Span(pos, pos)]), 0.5) * of_loss).sum()

    v.requires_grad_()
    first = loss(v)
    state = torch.get_rng_state()
    (gradient,) = torch.autograd.grad(first, v)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        plain = v.detach()
    moved = loss((plain + step).requires_grad_())
    torch.testing.assert_close((moved - first).detach(), (gradient * step).sum())
