"""Accuracy by length: models whose answers are known, counted by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_recipes import tiny
from torch import nn

from zoo.data import open_data
from zoo.evaluation.interval import interval_of_rate
from zoo.evaluation.protocols.protocol import Execution, build_protocol
from zoo.tasks import build_task

SAMPLES, TRAINED = 100, 8


def with_model(model, data, kind, *sets):
    """A task around a model of known answers, and its source."""
    evaluate = {"samples": SAMPLES, "batch_tokens": 100}
    recipe = tiny({"sequence_length": TRAINED, **data}, *sets, kind=kind, evaluate=evaluate)
    source = open_data(recipe)
    task = build_task(recipe, source.vocab_size)
    task.model = model
    return task, source


class Pointer(nn.Module):
    """Points at a largest token: the first of them, or with `last` the last."""

    def __init__(self, last=False):
        super().__init__()
        self.encoding = SimpleNamespace(max_length=None)
        self.slope = 1e-2 if last else -1e-2

    def forward(self, tokens):
        return tokens.float() + self.slope * torch.arange(tokens.shape[1])


@pytest.fixture
def pointing():
    return lambda model, *sets: with_model(model, {"name": "max_index"}, "encoder", *sets)


class Reciter(nn.Module):
    """Copies as it should, but takes one symbol for another."""

    def __init__(self, mistaken=None):
        super().__init__()
        self.encoding = SimpleNamespace(max_length=None)
        self.mistaken = mistaken
        self.asked = []

    def forward(self, tokens, wanted):
        self.asked.append((tokens.shape, int(wanted.sum())))
        ask = (tokens == 2).int().argmax(1, keepdim=True)
        places = (torch.arange(tokens.shape[1]) - ask + 1).clamp(min=0)
        said = tokens.gather(1, places)
        if self.mistaken:
            said = torch.where(said == self.mistaken, self.mistaken + 1, said)
        return nn.functional.one_hot(said, 13)[wanted].float()


@pytest.fixture
def reciting():
    return lambda model, *sets: with_model(model, {"name": "copy"}, "decoder", *sets)


def test_a_perfect_pointer_is_always_right(pointing, measure):
    length = 31
    (row,) = measure("accuracy", *pointing(Pointer()), [length])
    assert row["accuracy"] == row["value_accuracy"] == 1.0
    # Of so many examples all were right, which does not say that all others would be.
    assert 1 - 4 / SAMPLES < row["accuracy_low"] < 1 - 3 / SAMPLES and row["accuracy_high"] == 1.0
    assert row["units"] == {"scores": [1] * SAMPLES}
    assert row["examples"] == SAMPLES and row["tokens"] == SAMPLES * length


@pytest.mark.parametrize("length", [8, 31])
def test_the_index_against_brute_force(pointing, measure, length):
    task, source = pointing(Pointer(last=True))
    (row,) = measure("accuracy", task, source, [length])
    right = {"within": [], "beyond": []}
    for index in range(SAMPLES):
        tokens = source.examples("test", length, SAMPLES)[index]["tokens"].tolist()
        first = tokens.index(max(tokens))
        last = length - 1 - tokens[::-1].index(max(tokens))
        right["within" if first < TRAINED else "beyond"].append(first == last)
    everything = right["within"] + right["beyond"]
    assert row["accuracy"] == pytest.approx(sum(everything) / SAMPLES) and 0 < row["accuracy"] < 1
    assert row["value_accuracy"] == 1.0  # the last of the largest is as large as the first
    for where, answers in right.items():
        assert row[f"examples_{where}"] == len(answers)
        expected = sum(answers) / len(answers) if answers else None
        assert row[f"accuracy_{where}"] == (pytest.approx(expected) if answers else None)
        assert row[f"value_accuracy_{where}"] == (1.0 if answers else None)
        assert (row[f"accuracy_{where}_low"] is None) == (len(answers) < 2)
    assert (length > TRAINED) == bool(right["beyond"])


def test_answers_against_brute_force(reciting, measure):
    length = 25
    task, source = reciting(Reciter(mistaken=5))
    (row,) = measure("accuracy", task, source, [length])
    exact, shares = [], []
    for _, answer in map(source.examples("test", length, SAMPLES).example, range(SAMPLES)):
        exact.append(5 not in answer)
        shares.append(sum(token != 5 for token in answer) / len(answer))
    assert row["accuracy"] == pytest.approx(sum(exact) / SAMPLES) and 0 < row["accuracy"] < 1
    assert row["token_accuracy"] == pytest.approx(sum(shares) / SAMPLES) and 0 < row["token_accuracy"] < 1
    # The intervals are over examples: the tokens of one are not independent of each other.
    assert (row["accuracy_low"], row["accuracy_high"]) == interval_of_rate(np.array(exact, float))
    low, high = interval_of_rate(np.array(shares))
    assert row["token_accuracy_low"] == pytest.approx(low)
    assert row["token_accuracy_high"] == pytest.approx(high)
    assert row["examples"] == SAMPLES and row["tokens"] == SAMPLES * length
    assert not [name for name in row if name.startswith("examples_")]


def test_batches_hold_no_more_tokens_than_asked_and_logits_only_answers(reciting, measure):
    task, source = reciting(Reciter())
    measure("accuracy", task, source, [33])
    assert {shape for shape, _ in task.model.asked} == {(3, 33), (1, 33)}
    assert sum(count for _, count in task.model.asked) == SAMPLES * 16


def test_lengths_that_cannot_be_had_say_why(reciting, measure):
    task, source = reciting(Reciter())
    rows = measure("accuracy", task, source, [2, 9])
    assert "2 tokens are too few for copy" in rows[0]["note"]
    assert rows[1]["accuracy"] == 1.0
    task.model.encoding.max_length = 8
    assert measure("accuracy", task, source, [9])[0]["note"] == "the encoding ends at 8 tokens"


def test_a_sequence_as_long_as_memory_allows_is_read_alone(reciting, measure):
    task, source = reciting(Reciter(), "evaluate.samples=2")
    (row,) = measure("accuracy", task, source, [301])
    assert [shape for shape, _ in task.model.asked] == [(1, 301)] * 2 and row["accuracy"] == 1.0


def test_equal_digests_are_equal_examples(reciting, measure):
    def digest(length=9, *sets):
        (row,) = measure("accuracy", *reciting(Reciter(), *sets), [length])
        return row["targets"]

    assert digest() == digest(9, "seed=7", "evaluate.batch_tokens=50", "model.encoding=alibi")
    assert digest() == digest(11)  # lengths of one series
    others = [digest(9, "evaluate.samples=99"), digest(9, "data.num_symbols=9")]
    assert len({digest(), *others}) == 3


def test_the_validation_split_is_another_measurement(reciting, measure):
    task, source = reciting(Reciter(mistaken=5), "evaluate.split=valid")
    (row,) = measure("accuracy", task, source, [9])
    (default,) = measure("accuracy", *reciting(Reciter(mistaken=5)), [9])
    answers = [answer for _, answer in map(source.examples("valid", 9, SAMPLES).example, range(SAMPLES))]
    assert row["accuracy"] == pytest.approx(sum(5 not in answer for answer in answers) / SAMPLES)
    assert (row["parameters"], default["parameters"]) == ({"split": "valid"}, {})
    assert row["targets"] != default["targets"]


def test_a_row_tells_how_much_of_it_training_may_have_seen(reciting, pointing, measure):
    """Strings of up to three symbols are too few to hold some out; a trained length of 5 has those of two."""
    rows = measure("accuracy", *reciting(Reciter(), "data.sequence_length=5"), [3, 5, 7, 9, 24])
    assert [row["seen_in_training"] for row in rows] == [1.0, 1.0, 0.0, 0.0, 0.0]
    rows = measure("accuracy", *pointing(Pointer(), "data.sequence_length=2"), [2, 4, 8])
    assert [row["seen_in_training"] for row in rows] == [1.0, 0.0, 0.0]


class Left(Exception):
    """Leaves a measurement once a process has said what its share gave."""


class OneOfTwo:
    """One of two processes that never meet: the first gathers what the second recorded."""

    device, size = torch.device("cpu"), 2

    def __init__(self, rank, other=None):
        self.rank, self.other, self.said = rank, other, None

    def gather(self, own):
        self.said = own
        if self.rank == 1:
            raise Left
        return [own, self.other]


def test_two_processes_give_the_rows_of_one(pointing, measure):
    task, source = pointing(Pointer(last=True))
    (alone,) = measure("accuracy", task, source, [31])
    (plan,) = build_protocol("accuracy", task.recipe.evaluate).plan(task, source, [31])
    (planned,) = plan.lengths
    read, second = [], OneOfTwo(1)
    with pytest.raises(Left):
        planned.score(Execution(second, read.append))
    shared = planned.score(Execution(OneOfTwo(0, second.said), read.append))
    about = {"length": 31, "parameters": {}, "targets": plan.targets.digest}
    assert shared | about | {"units": shared["units"].columns()} == alone
    assert sum(read) == 2 * SAMPLES * 31  # each one's bar shows the work of both


def test_passkeys_are_told_apart_by_whether_the_key_is_within_the_trained_length(tmp_path, measure):
    class Blind(nn.Module):
        """Sees no farther back than so many tokens."""

        def __init__(self, reach):
            super().__init__()
            self.encoding, self.reach = SimpleNamespace(max_length=None), reach

        def forward(self, tokens, wanted):
            answers = []
            for row, asked in zip(tokens, wanted, strict=True):
                first = int(asked.int().argmax())
                seen = range(first - self.reach, first - 5)
                keys = [place for place in seen if (row[place - 8 : place] == sentence[-8:]).all()]
                answers += row[keys[0] : keys[0] + 5] if keys else [torch.tensor(0)] * 5
            return nn.functional.one_hot(torch.stack(answers), 400).float()

    data = {
        "name": "passkey", "corpus": "sample", "documents": 12, "words": 300, "cache": str(tmp_path),
        "vocab_size": 400, "sequence_length": 120,
    }  # fmt: skip
    task, source = with_model(Blind(119), data, "decoder", "evaluate.batch_tokens=2000")
    sentence = torch.tensor(source.examples("test", 300, 1).questions.before)
    (row,) = measure("accuracy", task, source, [300])
    assert row["accuracy_within"] == 1.0 and row["accuracy_beyond"] == 0.0
    assert row["examples_within"] + row["examples_beyond"] == SAMPLES and row["examples_within"] > 10
    assert row["accuracy"] == pytest.approx(row["examples_within"] / SAMPLES)
