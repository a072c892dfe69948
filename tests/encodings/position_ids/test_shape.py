"""SHAPE against a loop over sequences, and the statistics of its offsets."""

from collections import Counter

import pytest
import torch

from zoo.contract.causality import decoded
from zoo.encodings.stack import build_encoding
from zoo.errors import InputError


def shape(of="sinusoidal", **options):
    return {"name": "shape", "of": of, **options}


def test_each_sequence_is_shifted_by_its_own_offset(model_of, tokens, agree):
    row, plain = tokens(5, 12), model_of("sinusoidal")
    model = model_of(shape(max_offset=40)).train()
    torch.manual_seed(3)
    got = model(row)
    torch.manual_seed(3)
    offsets = [int(40 * number) for number in torch.rand(5).tolist()]
    assert len(set(offsets)) > 1
    for b, offset in enumerate(offsets):
        moved = torch.tensor([i + offset for i in range(12)])
        expected = plain(row[b : b + 1], positions=moved)
        agree(got[b : b + 1], expected, encoding="shape", against="a loop over the sequences")


def test_every_offset_is_as_likely(size_of):
    encoding, count = build_encoding(shape(max_offset=8), size_of()).train(), 8000
    got = encoding.positions(torch.arange(3), count)
    assert (got - got[:, :1] == torch.arange(3)).all()
    seen = Counter(got[:, 0].tolist())
    assert sorted(seen) == list(range(8))
    for times in seen.values():
        assert abs(times - count / 8) < 4 * (count / 8 * 7 / 8) ** 0.5


def test_outside_training_the_offset_is_fixed(model_of, tokens, agree):
    for offset in (0, 7, 500):
        model, row = model_of(shape(evaluation_offset=offset)), tokens(2, 12)
        expected = model_of("sinusoidal")(row, positions=torch.arange(offset, offset + 12))
        agree(model(row), expected, encoding="shape", against="plain positions, all moved alike")
        torch.testing.assert_close(decoded(model, row, [5, 1, 1, 3, 2]), expected, rtol=0, atol=1e-5)


def test_a_learned_table_must_reach_the_largest_offset(model_of, tokens):
    def table(rows, **options):
        return shape({"name": "learned", "table_length": rows}, max_offset=10, **options)

    with pytest.raises(
        InputError, match=r"reach position 25, .* only 25 positions: give it table_length: 26"
    ):
        model_of(table(25))
    with pytest.raises(InputError, match="table_length: 47"):
        model_of(table(46, evaluation_offset=30))
    model = model_of(table(26))
    for _ in range(40):
        assert model.train()(tokens(4, 17)).isfinite().all()
    assert model.encoding.max_length == 17
    # Where the offset is smaller there is more room.
    assert model.eval().encoding.max_length == 26
