"""CoPE against `x_transformers`, a loop over the paper's equations and, with open gates, a table."""

import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.contextual.cope import CoPE
from zoo.encodings.stack import LayerEncodings
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

B, H, T, D, ROWS = 2, 6, 13, 8, 6
POS = torch.arange(T)


@pytest.fixture
def cope(size_of):
    encoding = CoPE(size_of(), max_positions=ROWS)
    torch.nn.init.normal_(encoding.table)
    return encoding


def heads():
    return torch.randn(B, H, T, D), torch.randn(B, H, T, D)


def equations(q, k, v, table, keep, window):
    """Section 3: gates, their sums, the interpolated vector, and softmax(q (k + e[p]) / sqrt(D)) v."""
    out = torch.zeros(B, H, T, D)
    last = len(table) - 1
    for b in range(B):
        for h in range(H):
            for i in range(T):
                seen = [j for j in range(i + 1) if keep[b, j] and i - j < window]
                if not seen:
                    continue
                product = {j: (q[b, h, i] @ k[b, h, j]).item() for j in seen}
                gate = {j: 1 / (1 + math.exp(-product[j] / math.sqrt(D))) for j in seen}
                scores = []
                for j in seen:
                    p = min(sum(gate[t] for t in seen if t >= j), last)
                    low, high = math.floor(p), math.ceil(p)
                    e = (p - low) * table[high] + (1 - p + low) * table[low]
                    scores.append((product[j] + (q[b, h, i] @ e).item()) / math.sqrt(D))
                weights = torch.tensor(scores).exp()
                out[b, h, i] = (weights / weights.sum()) @ v[b, h, seen]
    return out


@pytest.mark.parametrize(("window", "padded"), [(T, 5), (4, 0), (4, 5)])
def test_the_equations_of_the_paper(window, padded, cope, agree):
    (q, k), v = heads(), torch.randn(B, H, T, D)
    keep = POS[None] >= torch.tensor([[0], [padded]])
    context = AttentionContext(POS, POS, keep=keep if padded else None, window=window)
    with torch.no_grad():
        got = attend(q, k, v, ScoreTerms(LayerEncodings([cope]), [context]), D**-0.5)
        expected = equations(q, k, v, cope.table, keep, window)
    real = keep[:, None, :, None]
    agree(got * real, expected * real, encoding="cope", against="formula: section 3, by a loop")


def test_the_cope_of_x_transformers(cope, agree):
    """It returns the position scores undivided, as the paper's appendix adds them."""
    module = pytest.importorskip("x_transformers.x_transformers")
    theirs = module.CoPE(D, H, ROWS)
    q, k = heads()
    logits = 3 * q @ k.transpose(-1, -2) / math.sqrt(D)
    hidden = logits.masked_fill(POS[None] > POS[:, None], -torch.inf)
    with torch.no_grad():
        theirs.pos_emb.copy_(cope.table)
        got = cope.logits(logits, q, k, AttentionContext(POS, POS)) - logits
        expected = theirs(q, hidden) / math.sqrt(D)
    agree(got.tril(), expected.tril(), encoding="cope", against="x_transformers CoPE, over sqrt(D)")


def test_a_gradient_passes_through_the_gates(cope):
    q, k = heads()
    logits = (q @ k.transpose(-1, -2)).requires_grad_()
    added = (cope.logits(logits, q, k, AttentionContext(POS, POS)) - logits)[0, 0, 3, 0]
    # The score of key 0 for query 3 counts the gates 0 .. 3 of its row, and no other.
    moved = torch.autograd.grad(added, logits)[0] != 0
    assert moved[0, 0, 3, :4].all() and moved.sum() == 4


def test_counts_stay_in_float32(size_of):
    cope = CoPE(size_of(), max_positions=1000)
    with torch.no_grad():
        cope.table[:, 0] = torch.arange(1000.0)
    q = torch.zeros(1, H, 1, D)
    q[..., 0] = math.sqrt(D)
    logits = torch.full((1, H, 1, 700), 20.0)
    context = AttentionContext(torch.tensor([699]), torch.arange(700), query_offset=699)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        counted = cope.logits(logits, q, q, context) - logits
    torch.testing.assert_close(counted[0, 0, 0], torch.arange(700.0, 0, -1), rtol=0, atol=1e-3)


def test_it_starts_as_an_encoding_without_positions(model_of, tokens):
    """The vectors start at 0, as published: a fresh model is one without positions."""
    cope, none = (model_of(name, large_weights=False).double() for name in ("cope", "none"))
    torch.testing.assert_close(cope(tokens(2, 9)), none(tokens(2, 9)), rtol=0, atol=1e-12)
