"""The loss over a vocabulary in parts is cross-entropy of all logits, with its gradients."""

import pytest
import torch
import torch.nn.functional as F

from zoo.data.blocks import NOT_SCORED
from zoo.models import vocabulary_loss
from zoo.models.vocabulary_loss import losses, summed_loss

TOKENS, WIDTH, VOCABULARY = 37, 8, 50


@pytest.fixture(params=["small parts", "one part"])
def parts(request, monkeypatch):
    if request.param == "small parts":
        monkeypatch.setitem(vocabulary_loss.PART_ELEMENTS, "cpu", 5 * VOCABULARY)
        monkeypatch.setattr(vocabulary_loss, "SLICE_ELEMENTS", 2 * VOCABULARY)


def inputs(dtype=torch.float64, ignored=()):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, WIDTH, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator).to(dtype).requires_grad_()
    targets = torch.randint(0, VOCABULARY, (TOKENS,), generator=generator)
    targets[list(ignored)] = NOT_SCORED
    return hidden, weight, targets


def plain(hidden, weight, targets):
    return F.cross_entropy(F.linear(hidden, weight), targets, reduction="sum")


def test_loss_and_gradients(parts):
    for ignored in ((), (0, 3, 36), range(TOKENS)):
        hidden, weight, targets = inputs(ignored=ignored)
        pairs = []
        for function in (summed_loss, plain):
            loss = function(hidden, weight, targets)
            pairs.append((loss, *torch.autograd.grad(loss / 7, (hidden, weight))))
        torch.testing.assert_close(*pairs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
def test_errors_are_those_of_rounding(dtype, error, parts):
    hidden, weight, targets = inputs(dtype)
    loss = summed_loss(hidden, weight, targets)
    assert loss.dtype == torch.float32
    exact = plain(hidden.double(), weight.double(), targets)
    torch.testing.assert_close(loss.double(), exact, rtol=error, atol=0)
    pairs = [torch.autograd.grad(one, (hidden, weight)) for one in (loss, exact)]
    for ours, theirs in zip(*pairs, strict=True):
        assert (ours - theirs).norm() / theirs.norm() < error


def test_autocast_computes_in_bf16_what_has_gradients_in_float32():
    hidden, weight, targets = inputs(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = summed_loss(hidden, weight, targets)
    assert [x.dtype for x in (loss, *torch.autograd.grad(loss, (hidden, weight)))] == 3 * [torch.float32]


def test_an_extreme_loss_is_finite():
    hidden, weight, targets = inputs(torch.float32)
    loss = summed_loss(hidden * 1000, weight, targets)
    torch.testing.assert_close(loss, plain(hidden * 1000, weight, targets))


def test_without_gradients_nothing_is_kept():
    hidden, weight, targets = inputs()
    with torch.no_grad():
        loss = summed_loss(hidden, weight, targets)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, plain(hidden, weight, targets))


def test_compiled_it_is_the_same():
    hidden, weight, targets = inputs(torch.float32, ignored=(3,))
    compiled = torch.compile(summed_loss, backend="aot_eager", fullgraph=True)
    pairs = [
        torch.autograd.grad(f(hidden, weight, targets), (hidden, weight)) for f in (compiled, summed_loss)
    ]
    torch.testing.assert_close(*pairs)


def test_losses_one_by_one(parts):
    hidden, weight, targets = inputs(torch.float32, ignored=(3,))
    each = losses(hidden.view(1, TOKENS, WIDTH), weight, targets[None])
    assert each.shape == (1, TOKENS) and each[0, 3] == 0
    torch.testing.assert_close(each.sum(), plain(hidden, weight, targets))
