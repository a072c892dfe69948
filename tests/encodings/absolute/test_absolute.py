"""Sinusoidal and learned positions, and none: against loops, and past the end of the table."""

import math

import pytest
import torch

from zoo.encodings.absolute.learned import Learned
from zoo.encodings.absolute.sinusoidal import Sinusoidal

E = 48


def rows(encoding, pos):
    """The rows that are added to the token vectors, [T,E]."""
    placed = encoding.positions(pos, 1) if encoding.uses("positions") else pos
    return encoding.embed(torch.zeros(1, len(pos), E), placed)[0]


@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_sinusoidal_is_the_formula_of_the_paper(base, size_of, agree):
    interleaved = rows(Sinusoidal(size_of(), base=base), torch.arange(50))
    concatenated = rows(Sinusoidal(size_of(), base=base, layout="concatenated"), torch.arange(50))
    expected = torch.empty(50, E)
    for p in range(50):
        for i in range(E // 2):
            angle = p / base ** (2 * i / E)
            expected[p, 2 * i], expected[p, 2 * i + 1] = math.sin(angle), math.cos(angle)
            assert concatenated[p, i] == interleaved[p, 2 * i]
            assert concatenated[p, E // 2 + i] == interleaved[p, 2 * i + 1]
    agree(interleaved, expected, encoding="sinusoidal", against="loop over the formula of section 3.5")


def test_token_vectors_are_scaled(size_of):
    for given, factor in ((None, math.sqrt(E)), (1.0, 1.0), (3.0, 3.0)):
        encoding, x = Sinusoidal(size_of(), token_scale=given), torch.randn(1, 5, E)
        pos = torch.arange(5)
        torch.testing.assert_close(encoding.embed(x, pos)[0], x[0] * factor + rows(encoding, pos))


def test_learned_is_a_row_of_its_table(size_of, agree):
    for beyond in ("error", "clamp", "interpolate"):
        encoding, x = Learned(size_of(length=16), beyond=beyond), torch.randn(2, 16, E)
        got = encoding.embed(x, torch.arange(16))
        for p in range(16):
            agree(got[:, p], x[:, p] + encoding.table[p], encoding="learned", against="loop over the table")


def test_clamp_repeats_the_last_row(size_of):
    encoding = Learned(size_of(length=16), beyond="clamp")
    got = rows(encoding, torch.arange(40))
    assert torch.equal(got[:16], encoding.table)
    for p in range(16, 40):
        assert torch.equal(got[p], encoding.table[15])


def test_interpolate_stretches_the_table_over_the_sequence(size_of, agree):
    encoding = Learned(size_of(length=16), beyond="interpolate")
    length = 46
    got = rows(encoding, torch.arange(length))
    for p in range(length):
        place = p * 15 / (length - 1)
        low = min(int(place + 1e-6), 14)
        expected = encoding.table[low] + (place - low) * (encoding.table[low + 1] - encoding.table[low])
        agree(got[p], expected, encoding="learned", against="loop over the stretched table")


def test_the_table_may_be_longer_than_the_trained_length(model_of, tokens):
    model = model_of({"name": "learned", "table_length": 24}, length=16)
    assert model.encoding.max_length == 24
    assert model(tokens(1, 24)).isfinite().all()
