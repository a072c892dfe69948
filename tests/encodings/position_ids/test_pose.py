"""PoSE against a loop over the two chunks, the statistics of its draws, and its identities."""

from collections import Counter
from itertools import pairwise

import pytest
import torch

from zoo.encodings.base import positions_by_document
from zoo.encodings.stack import build_encoding


def pose(of="rope", **options):
    return {"name": "pose", "of": of, **options}


@pytest.fixture
def draws(size_of):
    """draws(ids, batch, most): the positions in training, [batch, tokens]."""

    def draws(ids, batch, most):
        return build_encoding(pose(max_position=most), size_of(length=1)).train().positions(ids, batch)

    return draws


def by_chunks(length, first, skip):
    return [*range(first), *(i + skip for i in range(first, length))]


def split(row):
    """The length of the first chunk and the skip of a row of positions; no skip: None and 0."""
    jumps = [i + 1 for i, (a, b) in enumerate(pairwise(row)) if b != a + 1]
    assert len(jumps) <= 1
    return (jumps[0], row[jumps[0]] - jumps[0]) if jumps else (None, 0)


@pytest.mark.parametrize("of", ["sinusoidal", "rope", "alibi", "t5"])
def test_it_is_the_wrapped_encoding_at_skipped_positions(of, model_of, tokens, agree):
    row, plain = tokens(4, 12), model_of(of)
    model = model_of(pose(of, max_position=60)).train()
    torch.manual_seed(3)
    got = model(row)
    torch.manual_seed(3)
    first, skip = torch.rand(4, 2).T.tolist()
    for b in range(4):
        at = by_chunks(12, 1 + int(first[b] * 6), int(skip[b] * (60 - 12 + 1)))
        expected = plain(row[b : b + 1], positions=torch.tensor(at))
        agree(got[b : b + 1], expected, encoding="pose", against="a loop over the two chunks")


def test_chunks_and_skips_are_as_likely_as_in_the_formula(draws):
    count, length, most = 6000, 7, 12
    found = [split(row) for row in draws(torch.arange(length), count, most).tolist()]
    skips = Counter(skip for _, skip in found)
    firsts = Counter(first for first, skip in found if skip)
    assert sorted(skips) == list(range(most - length + 1)) and sorted(firsts) == [1, 2, 3, 4]
    for seen in (skips, firsts):
        total, share = sum(seen.values()), 1 / len(seen)
        for times in seen.values():
            assert abs(times - total * share) < 4 * (total * share * (1 - share)) ** 0.5


def test_the_largest_position_is_reached_and_not_passed(draws):
    for length in (1, 2, 9, 10):
        got = draws(torch.arange(length), 400, 10)
        assert got.amax() == (9 if length > 1 else 0) and (got.diff(dim=1) > 0).all()
        assert (got[:, 0] == 0).all()
    assert torch.equal(draws(torch.arange(11), 1, 10).squeeze(0), torch.arange(11))


def test_each_sequence_of_a_batch_is_cut_by_its_own_length(draws):
    # Five tokens after padding on the left; three before padding on the right.
    ids = torch.tensor([[0, 0, 0, 0, 1, 2, 3, 4], [0, 1, 2, 2, 2, 2, 2, 2]]).repeat_interleave(300, 0)
    left, right = draws(ids, 600, 20).split(300)
    assert left[:, 7].amax() == 19 and right[:, 2].amax() == 19
    assert (left[:, :3] == left[:, 3:4]).all() and (right[:, 3:] == right[:, 2:3]).all()
    assert {split(row)[0] for row in left[:, 3:].tolist()} == {None, 1, 2, 3}
    assert {split(row)[0] for row in right[:, :3].tolist()} == {None, 1, 2}


def test_each_document_is_cut_by_itself(size_of):
    encoding = build_encoding(pose(max_position=50), size_of(length=1)).train()
    got = positions_by_document(encoding, torch.tensor([[0, 1, 2, 3, 0, 1], [0, 0, 1, 2, 3, 4]]))
    for row, start, stop in ((0, 0, 4), (0, 4, 6), (1, 0, 1), (1, 1, 6)):
        part = got[row, start:stop].tolist()
        first, skip = split(part)
        assert part == by_chunks(stop - start, stop - start if first is None else first, skip)
