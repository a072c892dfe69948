"""FIRE against a loop over the paper's formula, and where it is relative and where not."""

import math

import pytest
import torch
import torch.nn.functional as F

from zoo.encodings.bias import fire
from zoo.encodings.bias.fire import FIRE
from zoo.encodings.context import AttentionContext, per_query_and_key

HEADS = 6


def formula(encoding, q_pos, k_pos, slope=0.0):
    """f(psi(i - j) / psi(max(L, i))) for one sequence, in float64; 0 where j > i, which the mask hides."""
    c, limit = abs(encoding.c.item()), abs(encoding.multiple.item() * encoding.threshold)
    w1, b1 = encoding.hidden.weight[:, 0].tolist(), encoding.hidden.bias.tolist()
    w2 = encoding.out.weight.tolist()
    bias = torch.zeros(HEADS, len(q_pos), len(k_pos))

    def psi(x):
        return math.log(c * x + 1)

    for row, i in enumerate(q_pos):
        for column, j in enumerate(k_pos):
            if j <= i:
                x = psi(i - j) / psi(max(limit, i))
                hidden = [w * x + b for w, b in zip(w1, b1, strict=True)]
                hidden = [u if u > 0 else slope * u for u in hidden]
                for h in range(HEADS):
                    bias[h, row, column] = sum(w * u for w, u in zip(w2[h], hidden, strict=True))
    return bias


def of_all_units(encoding, context):
    """The bias as autograd has it from the network's layers, [H,T,S] or [B,H,T,S]."""
    q, k = per_query_and_key(context.q_pos, context.k_pos)
    weight, offset = encoding.hidden.weight[:, 0], encoding.hidden.bias
    units = encoding.share(q.float(), k.float())[..., None] * weight + offset
    bias = encoding.out(F.leaky_relu(units, encoding.slope)).movedim(-1, -3)
    return bias.squeeze(1) if bias.dim() == 5 else bias


@pytest.mark.parametrize(("threshold", "learned"), [
    (5.0, False), (5.0, True), (512.0, True),
], ids=["beyond L", "beyond L, learned", "within L, learned"])  # fmt: skip
def test_the_formula_of_the_paper(threshold, learned, size_of, agree):
    encoding = FIRE(size_of(), threshold=threshold)
    if learned:
        with torch.no_grad():
            encoding.c.fill_(0.37)
            encoding.multiple.fill_(1.6)
    pos = torch.arange(20)
    for first in (0, 13):
        actual = encoding.bias_table(AttentionContext(pos[first:], pos, first), HEADS)
        expected = formula(encoding, pos[first:].tolist(), pos.tolist())
        past = pos[None] <= pos[first:, None]
        agree(actual * past, expected, encoding="fire", against="loop over the formula of the paper")


def test_leaky_relu_as_inside_dape(size_of, agree):
    encoding, pos = FIRE(size_of(), threshold=5.0, activation="leaky_relu"), torch.arange(20)
    with torch.no_grad():
        encoding.hidden.bias.normal_()
    actual = encoding.bias_table(AttentionContext(pos, pos), HEADS).tril()
    expected = formula(encoding, pos.tolist(), pos.tolist(), slope=0.01)
    agree(actual, expected, encoding="fire", against="loop over the formula, LeakyReLU in it")
    assert (actual - formula(encoding, pos.tolist(), pos.tolist())).abs().max() > 1e-4


def test_it_starts_as_published(size_of):
    encoding = FIRE(size_of(length=2048))
    assert encoding.c.item() == pytest.approx(0.1)
    assert encoding.multiple.item() * encoding.threshold == 512
    assert encoding.hidden.weight.shape == (32, 1)
    assert encoding.out.weight.shape == (HEADS, 32)


def test_training_meets_both_sides_of_l_at_any_length(size_of):
    """A quarter of the trained length is below L, where distance alone counts; the rest is beyond it."""
    for length in (4, 16, 256, 2048):
        encoding = FIRE(size_of(length=length))
        query = torch.arange(1, length)[:, None]
        share = encoding.share(query, query - 1)[:, 0]
        below = query[:, 0] <= length // 4
        assert below.any() and (share[below] == share[0]).all()
        assert (share[~below].diff() < 0).all() and (share[~below] < share[0]).all()


def test_a_learned_number_may_pass_through_zero(size_of):
    for broken in ("c", "multiple"):
        encoding, pos = FIRE(size_of()), torch.arange(12)
        with torch.no_grad():
            getattr(encoding, broken).zero_()
        table = encoding.bias_table(AttentionContext(pos, pos), HEADS)
        table.square().sum().backward()
        assert table.isfinite().all()
        assert all(p.grad.isfinite().all() for p in encoding.parameters())


def test_layers_share_it_with_the_option_shared(model_of):
    for shared, instances in ((False, 3), (True, 1)):
        stack = model_of({"name": "fire", "shared": shared}, num_layers=3).encoding
        assert len({id(stack.layer(layer).encodings[0]) for layer in range(3)}) == instances
        assert len(stack.slots[0]) == instances


@pytest.mark.parametrize(("activation", "first"), [("relu", 0), ("leaky_relu", 13)])
def test_blocks_of_queries_have_the_biases_and_gradients_of_the_whole(
    activation, first, size_of, monkeypatch
):
    encoding, pos = FIRE(size_of(), threshold=5.0, activation=activation), torch.arange(50)
    torch.nn.init.normal_(encoding.hidden.bias)
    pos = torch.stack([pos, 2 * pos])
    context = AttentionContext(pos[..., first:], pos, first)
    cotangent = torch.randn(HEADS, 50 - first, 50) * context.allowed()

    def with_gradients(table):
        seen = table * context.allowed()
        return seen, *torch.autograd.grad((seen * cotangent).sum(), list(encoding.parameters()))

    expected = with_gradients(of_all_units(encoding, context))
    for rows in (1, 7, 64):
        monkeypatch.setattr(fire, "ROWS", rows)
        actual = with_gradients(encoding.bias_table(context, HEADS))
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_positions_need_not_ascend(size_of):
    encoding, order = FIRE(size_of(), threshold=5.0), torch.randperm(50)
    torch.nn.init.normal_(encoding.hidden.bias)
    context, past = AttentionContext(order, order, causal=False), order <= order[:, None]
    cotangent = torch.randn(HEADS, 50, 50) * past
    tables = encoding.bias_table(context, HEADS) * past, of_all_units(encoding, context) * past
    torch.testing.assert_close(*tables, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(table, [*encoding.parameters()], cotangent) for table in tables]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-3)
