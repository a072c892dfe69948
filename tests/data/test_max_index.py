"""Max-index: the answer is the position of the first largest token."""

import numpy as np
import pytest
import torch

from zoo.data.max_index import MaxIndex


def test_answer_is_the_first_largest():
    for length in (1, 5, 64, 300):
        data = MaxIndex(length, 19, seed=0, split="valid", size=50)
        for example in data:
            tokens = example["tokens"].tolist()
            assert example["answer"].item() == tokens.index(max(tokens))
            assert example["tokens"].shape == (length,) and example["answer"].shape == ()
            assert example["tokens"].dtype == example["answer"].dtype == torch.int64


def test_values_are_uniform_and_zero_is_never_used():
    tokens = MaxIndex(64, 19, seed=0, split="train", size=2000).batch(range(2000))["tokens"]
    counts = np.bincount(tokens.flatten(), minlength=20)
    assert counts[0] == 0 and len(counts) == 20
    assert counts[1:] / tokens.numel() == pytest.approx(np.full(19, 1 / 19), rel=0.05)


def test_a_sequence_is_a_function_of_seed_split_and_index():
    def tokens(seed=0, split="train", index=3, length=64, size=10):
        return MaxIndex(length, 19, seed, split, size)[index]["tokens"]

    assert torch.equal(tokens(), tokens(size=1000))
    assert torch.equal(tokens(), tokens(length=256)[:64])
    for other in ({"seed": 1}, {"split": "valid"}, {"index": 4}):
        assert not torch.equal(tokens(), tokens(**other))


def test_an_index_beyond_the_end_is_refused():
    with pytest.raises(IndexError):
        MaxIndex(8, 19, 0, "train", 10)[10]
    assert len(list(MaxIndex(8, 19, 0, "train", 10))) == 10
