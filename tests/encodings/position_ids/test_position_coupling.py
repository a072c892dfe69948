"""Position coupling against a loop over the numbers of each row, the draws of its start, and its task."""

from collections import Counter

import torch

from zoo import registry
from zoo.data.draws import Chance, Draws
from zoo.data.questions import ASK, FIRST
from zoo.encodings.stack import build_encoding

PLUS = FIRST + 10


def coupled(row, start):
    """The ids of a row: s at an operator, s + 1, s + 2 ... at the digits of a number, 0 elsewhere."""
    found, place = [], 0
    for token in row:
        place = place + 1 if FIRST <= token < PLUS else 0
        found.append(start + place if place or token in (ASK, PLUS) else 0)
    return found


def test_it_adds_the_vector_of_the_id_to_each_token(model_of, tokens, agree):
    row = tokens(4, 40)
    model, plain = model_of("position_coupling"), model_of("none")
    plain.load_state_dict(model.state_dict(), strict=False)
    ids = torch.tensor([coupled(one, 1) for one in row.tolist()])
    added = model.encoding.slots[0][0].table[ids]
    plain.tokens.register_forward_hook(lambda _, given, x: x + added)
    agree(model(row), plain(row), encoding="position_coupling", against="a loop over the numbers")


def test_in_training_each_sequence_starts_so_that_its_longest_number_fits(size_of):
    encoding = build_encoding({"name": "position_coupling", "max_position": 7}, size_of()).train()
    row = torch.tensor([[3, 4, 5, PLUS, 6, ASK, 7, 8], [3, 4, 5, 6, 7, 8, 9, 10]])
    seen = [Counter(), Counter()]
    for _ in range(400):
        drawn = encoding.positions(torch.arange(8), 2, row)
        for one, got, counted in zip(row.tolist(), drawn, seen, strict=True):
            (start,) = (s for s in range(1, 8) if coupled(one, s) == got.tolist())
            counted[start] += 1
    assert sorted(seen[0]) == [1, 2, 3, 4] and max(seen[0].values()) < 140
    assert sorted(seen[1]) == [1]  # a number that is too long


def test_a_number_continues_over_the_end_of_a_chunk(size_of):
    encoding, row = build_encoding("position_coupling", size_of()).eval(), torch.tensor([[1, 4, PLUS, 5, 6]])
    parts = [encoding.positions(torch.arange(a, b), 1, row[:, :b]) for a, b in ((0, 2), (2, 4), (4, 5))]
    assert torch.cat(parts, 1).tolist() == [coupled(row[0].tolist(), 1)] == [[0, 2, 1, 2, 3]]


def test_digits_of_one_significance_share_an_id_in_addition(size_of):
    addition = registry.datasets.load("addition")(order="all_reversed")
    encoding = build_encoding("position_coupling", size_of()).eval()
    for size in (1, 5):
        prompt, answer = addition.example(size, Chance(Draws("test", size), 0, 64))
        row = torch.tensor([prompt + answer])
        number = list(range(2, 2 + size))
        expected = [0, *number, 1, *number, 1, *number, 2 + size]
        assert encoding.positions(torch.arange(row.shape[1]), 1, row).tolist() == [expected]
