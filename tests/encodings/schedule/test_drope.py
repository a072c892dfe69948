"""DroPE: no positions, and scores that sharpen beyond the trained length."""

import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.schedule.drope import DroPE

LENGTH = 16


@pytest.fixture
def drope(size_of):
    return lambda **options: DroPE(size_of(length=LENGTH), **options).eval()


def sharpened(q, count, scale, factor):
    """beta q, one query after the other; `count` numbers the tokens from 1."""
    rows = []
    for t, n in enumerate(count.tolist()):
        s = max(1.0, n / LENGTH) if factor is None else factor
        rows.append(q[:, :, t] * (1 + scale * math.log(s)))
    return torch.stack(rows, 2)


def test_queries_are_multiplied_by_beta(drope, agree):
    for options in ({}, {"scale": 0.103}, {"factor": 4.0}, {"scale": 0.0}):
        q, k, pos = torch.randn(2, 6, 40, 8), torch.randn(2, 6, 45, 8), torch.arange(45)
        got, untouched = drope(**options).rotate(q, k, AttentionContext(pos[5:], pos, query_offset=5))
        wanted = sharpened(q, pos[5:] + 1, options.get("scale", 0.412), options.get("factor"))
        agree(got, wanted, encoding="drope", against="1 + c ln s, query by query")
        assert untouched is k


def test_beta_of_the_paper(drope):
    """c = 0.412 and s = 2: beta = 1.2856."""
    one = torch.ones(1, 6, 1, 8)
    got, _ = drope(factor=2.0).rotate(one, one, AttentionContext(torch.zeros(1), torch.zeros(1)))
    assert got[0, 0, 0, 0].item() == pytest.approx(1.2856, abs=1e-4)


def test_every_sequence_counts_its_own_tokens(drope):
    """Padding does not count, and the positions do not either."""
    q, pos = torch.randn(2, 6, 64, 8), torch.arange(64)
    keep = pos >= torch.tensor([[50], [0]])
    got, _ = drope().rotate(q, q, AttentionContext(pos + 1000, pos + 1000, keep=keep))
    assert torch.equal(got[0, :, 50:], q[0, :, 50:])
    torch.testing.assert_close(got[1:], sharpened(q[1:], pos + 1, 0.412, None))


def test_up_to_the_trained_length_it_is_none(model_of, tokens):
    drope, none = model_of("drope"), model_of("none")
    assert torch.equal(drope(tokens(2, 16)), none(tokens(2, 16)))
    assert (drope(tokens(2, 32)) - none(tokens(2, 32)))[:, :16].abs().max() < 1e-5
    assert (drope(tokens(2, 32)) - none(tokens(2, 32)))[:, 20:].abs().max() > 1e-3
    # In training it is none at any length.
    assert torch.equal(drope.train()(tokens(2, 32)), none.train()(tokens(2, 32)))
