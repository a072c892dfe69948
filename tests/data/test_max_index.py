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


def test_order_uniform_puts_the_answer_anywhere():
    length, size = 96, 6000
    data = MaxIndex(length, 19, 0, "valid", size, uniform=True)
    batch = data.batch(range(size))
    tokens, answer = batch["tokens"], batch["answer"]
    assert torch.equal(answer, tokens.argmax(1))  # the first of equals
    assert tokens.min() >= 1 and tokens.max() == 19
    counts = np.bincount(answer // 12, minlength=8)
    # 6000 draws from 8 equal parts: 750 in each, standard deviation 26.
    assert abs(counts - 750).max() < 4 * 26
    # Largest tokens after the answer are common, so that the first of them has to be told apart.
    equal = (tokens == tokens.max(1, keepdim=True).values).sum(1)
    assert (equal > 1).float().mean() > 0.7


def test_order_independent_has_its_answers_at_the_beginning():
    answers = MaxIndex(512, 19, 0, "valid", 4000).batch(range(4000))["answer"]
    assert (answers < 64).float().mean() == pytest.approx(1 - (18 / 19) ** 64, abs=0.01)


def test_training_draws_no_uniform_sequence_of_the_evaluation():
    train, valid = (MaxIndex(8, 3, 0, split, 2000, uniform=True) for split in ("train", "valid"))
    drawn = ({tuple(row) for row in data.batch(range(2000))["tokens"].tolist()} for data in (train, valid))
    assert not set.intersection(*drawn)
