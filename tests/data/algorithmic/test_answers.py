"""Examples of any task as batches: their sizes, their layout, and their dependence on seed and split."""

from collections import Counter

import torch

from zoo.data.questions.answers import Answers

LENGTH = 48


def answers(named, length=LENGTH, size=64, seed=0, split="train", sizes="all"):
    name, task = named
    return Answers(task, name, length, size, seed=seed, split=split, sizes=sizes)


def test_tokens_and_targets_stand_where_a_loop_puts_them(usual):
    for sizes in ("all", "largest"):
        task, dataset = usual[1], answers(usual, sizes=sizes)
        batch = dataset.batch(range(64))
        assert batch["tokens"].dtype == batch["targets"].dtype == torch.int64
        for index in range(64):
            prompt, answer = dataset.example(index)
            asked = [len(prompt) + place for place in range(len(answer))[task.asked]]
            whole = prompt + answer
            for place in range(LENGTH):
                token = whole[place] if place < len(whole) - 1 else 0
                target = whole[place + 1] if place + 1 in asked else -100
                assert batch["tokens"][index, place] == token and batch["targets"][index, place] == target
            assert (batch["targets"][index] >= 0).sum() == len(asked) > 0


def test_training_has_every_size_equally_often(tasks):
    for named in tasks:
        _, task = named
        sizes, count = range(task.smallest, task.largest(LENGTH) + 1), 3000
        dataset = answers(named, size=count)
        # The length of a question tells its size.
        found = Counter(len(dataset.example(index)[0]) - 2 for index in range(count))
        assert set(found) == {task.lengths(size)[0] for size in sizes}
        expected = count / len(sizes)
        assert all(abs(times - expected) < 5 * expected**0.5 for times in found.values())


def test_evaluation_has_the_largest_size_that_fits_and_no_other(tasks):
    for named in tasks:
        for length in (40, 97, 256):
            _, task = named
            dataset = answers(named, length, split="test", sizes="largest")
            largest = max(size for size in range(task.smallest, length + 1) if task.tokens(size) <= length)
            assert {len(dataset.example(index)[0]) - 2 for index in range(64)} == {task.lengths(largest)[0]}
            assert dataset.batch(range(64))["tokens"].shape == (64, length)
