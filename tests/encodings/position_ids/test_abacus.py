"""Abacus against a loop over the numbers of each row, the statistics of its shift, and its task."""

from collections import Counter

import torch

from zoo import registry
from zoo.data.draws import Chance, Draws
from zoo.data.questions import FIRST
from zoo.encodings.stack import build_encoding

DIGITS = range(FIRST, FIRST + 10)


def places(row):
    """The place of each digit of a row in its number, from 1; 0 for another token."""
    found = []
    for token in row:
        found.append((found[-1] if found else 0) + 1 if token in DIGITS else 0)
    return found


def test_it_adds_the_vector_of_the_place_to_each_token(model_of, tokens, agree):
    row = tokens(4, 40)
    model, plain = model_of("abacus"), model_of("none")
    plain.load_state_dict(model.state_dict(), strict=False)
    added = model.encoding.slots[0][0].table[torch.tensor([places(one) for one in row.tolist()])]
    plain.tokens.register_forward_hook(lambda _, given, x: x + added)
    agree(model(row), plain(row), encoding="abacus", against="a loop over the digits")


def test_in_training_one_shift_moves_all_digits_of_a_batch(size_of, tokens):
    encoding, row = build_encoding({"name": "abacus", "shift": 3}, size_of()).train(), tokens(2, 30)
    plain, seen = torch.tensor([places(one) for one in row.tolist()]), Counter()
    for _ in range(400):
        moved = encoding.positions(torch.arange(30), 2, row)
        (shift,) = (moved - plain)[plain > 0].unique().tolist()
        assert torch.equal(moved, plain + shift * (plain > 0))
        seen[shift] += 1
    assert sorted(seen) == [0, 1, 2, 3] and max(seen.values()) < 140


def test_a_number_continues_over_the_end_of_a_chunk_and_ends_with_its_document(size_of):
    encoding = build_encoding("abacus", size_of()).eval()
    row = torch.tensor([[3, 4, 13, 5, 6, 7]])
    assert encoding.positions(torch.arange(4, 6), 1, row).tolist() == [[2, 3]]
    padded = torch.tensor([[-1, -1, 4, 5]])
    assert encoding.positions(torch.arange(4), 1, padded).tolist() == [[0, 0, 1, 2]]


def test_with_all_numbers_reversed_digits_of_one_significance_have_one_place():
    addition = registry.datasets.load("addition")(order="all_reversed")
    for size in (1, 3, 8):
        question, answer = addition.draw(size, Chance(Draws("test", size), 0, 64))
        one, two, total = (
            sum(digit * 10**i for i, digit in enumerate(number))
            for number in (question[:size], question[size + 1 :], answer)
        )
        assert one + two == total and len(answer) == size + 1
