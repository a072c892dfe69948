"""`model.gradient_checkpointing`: the same losses and gradients with less memory."""

import pytest
import torch

from zoo.contract.training import Allocated
from zoo.encodings.context import AttentionContext
from zoo.models.plans import choose, recomputed


def with_gradients(model, row, low=False):
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        loss = model.train()(row, targets=row.roll(-1, 1))
    loss.backward()
    return loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


# Of each form: angles and biases that layers share, features, content, attention that is recomputed too.
@pytest.mark.parametrize(("spec", "low"), [
    ("rope", False), ("t5", True), ("cope", False), ("path", True), (["rope", "fox"], False),
])  # fmt: skip
def test_losses_are_equal_bit_by_bit_and_gradients_up_to_rounding(spec, low, model_of, tokens):
    options = {"num_layers": 3, "length": 33, "dropout": 0.1, "logit_scale": "scalable_softmax"}
    loss, expected = with_gradients(model_of(spec, **options), tokens(2, 33), low)
    again, gradients = with_gradients(
        model_of(spec, gradient_checkpointing=True, **options), tokens(2, 33), low
    )
    assert torch.equal(again, loss)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        bound = (1e-2 if low else 1e-5) * expected[name].abs().max().item()
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=bound + 1e-8, msg=name)


@pytest.mark.parametrize(("spec", "share"), [("none", 0.5), ("path", 0.7)])
def test_memory_falls(spec, share, model_of, tokens, monkeypatch):
    monkeypatch.setattr(choose, "MOST_KEPT_ELEMENTS", 0)
    peaks = []
    for checkpointing in (False, True):
        model = model_of(spec, num_layers=8, length=256, gradient_checkpointing=checkpointing)
        with Allocated() as allocated:
            with_gradients(model, tokens(2, 256))
        peaks.append(allocated.peak)
    assert peaks[1] < share * peaks[0]


def test_attention_in_blocks_is_computed_again_too(model_of, tokens, monkeypatch):
    monkeypatch.setattr(choose, "MOST_KEPT_ELEMENTS", 0)
    attend, calls = recomputed.attend, []
    monkeypatch.setattr(recomputed, "attend", lambda *given: calls.append(1) or attend(*given))
    expected = with_gradients(model_of("path", length=70), tokens(2, 70))[1]
    gradients = with_gradients(model_of("path", length=70, gradient_checkpointing=True), tokens(2, 70))[1]
    assert len(calls) == 2 * 3
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-6)


def test_angles_are_computed_once(model_of, tokens, monkeypatch):
    once, made = AttentionContext.once, []

    def watched(context, owner, at, make):
        return once(context, owner, at, lambda pos: made.append(1) or make(pos))

    monkeypatch.setattr(AttentionContext, "once", watched)
    with_gradients(model_of("rope", num_layers=3, gradient_checkpointing=True), tokens(2, 13))
    assert len(made) == 1


def test_compiled_it_is_the_same(model_of, tokens):
    model, row = model_of("t5", gradient_checkpointing=True), tokens(2, 13)
    loss, expected = with_gradients(model, row)
    model.zero_grad()
    torch.compiler.reset()
    again, gradients = with_gradients(torch.compile(model, backend="aot_eager"), row)
    torch.testing.assert_close(again, loss)
    gradients = {name.removeprefix("_orig_mod."): gradient for name, gradient in gradients.items()}
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-6)
