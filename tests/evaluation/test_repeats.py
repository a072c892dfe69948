"""Protocol repeats against plain loops over the text."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from known_windows import total_loss, whole_stream

from zoo.data import open_data
from zoo.errors import InputError
from zoo.evaluation.protocols.repeats import repeat_distances
from zoo.tasks import build_task

LENGTHS = [16, 50]


def repeats_of(source, size, window, rare_below):
    """{target's place: (distance to the bigram's last occurrence, tokens of context)}, both in the window; of
    separate documents the distance is within the document."""
    train = source.stream("train")[:].tolist()
    seen = Counter(pairwise(train))
    stream = whole_stream(source).tolist()
    found = {}
    for first in range(0, size, window):
        last = {}
        for pair in range(first, min(first + window, size)):
            if source.separate and pair and stream[pair] == source.tokenizer.end_token:
                last = {}
            bigram = stream[pair], stream[pair + 1]
            if bigram in last and seen[bigram] < rare_below:
                found[pair + 1] = pair - last[bigram], pair + 1 - first
            last[bigram] = pair
    return found


@pytest.mark.parametrize("rare_below", [1, 30, 10**6])
def test_the_loss_by_distance_is_that_of_a_loop(text_recipe, counting, measure, rare_below):
    recipe = text_recipe("decoder", "many", "evaluate.max_tokens=400", f"evaluate.rare_below={rare_below}")
    task, source = counting(recipe)
    expected = repeats_of(source, 400, 50, rare_below)
    rows = measure("repeats", task, source, LENGTHS)
    if not expected:
        assert rare_below == 1 and all("no rare bigram" in row["note"] for row in rows)
        return
    losses = total_loss(task.model, whole_stream(source), {at: own for at, (_, own) in expected.items()})
    lowest = 0
    for row in rows:
        inside = [losses[at] for at, (far, _) in expected.items() if lowest < far <= row["length"]]
        assert row["tokens"] == len(inside)
        assert row["loss_nats"] == pytest.approx(np.mean(inside), rel=1e-6)
        assert row["parameters"] == {"window": 50, "rare_below": rare_below}
        assert not any("word" in key for key in row)
        lowest = row["length"]
    assert sum(row["tokens"] for row in rows) == len(expected)


def test_separate_documents_repeat_nothing_of_each_other(text_recipe, measure):
    def scored(packing):
        sets = "evaluate.max_tokens=400", "evaluate.rare_below=1000000", f"data.packing={packing}"
        recipe = text_recipe("decoder", "many", *sets)
        source = open_data(recipe)
        task = build_task(recipe, source.vocab_size).eval()
        task.card = {}
        rows = measure("repeats", task, source, LENGTHS)
        expected = repeats_of(source, 400, 50, 10**6)
        lowest = 0
        for row in rows:
            assert row["tokens"] == sum(lowest < far <= row["length"] for far, _ in expected.values())
            lowest = row["length"]
        assert sum(row["tokens"] for row in rows) == len(expected)
        return len(expected)

    with torch.no_grad():
        assert 0 < scored("separate") < scored("packed")


def test_a_bigram_of_as_many_occurrences_as_the_bound_is_not_rare(text_recipe, counting, measure):
    def scored(rare_below):
        sets = "evaluate.max_tokens=400", f"evaluate.rare_below={rare_below}"
        task, source = counting(text_recipe("decoder", "many", *sets))
        return source, sum(row["tokens"] for row in measure("repeats", task, source, LENGTHS))

    source, _ = scored(10**6)
    seen, stream = Counter(pairwise(source.stream("train")[:].tolist())), whole_stream(source).tolist()
    occurrences = max(seen[stream[at - 1], stream[at]] for at in repeats_of(source, 400, 50, 10**6))
    assert (
        scored(occurrences)[1] == len(repeats_of(source, 400, 50, occurrences)) < scored(occurrences + 1)[1]
    )


def test_distances_are_those_of_a_loop():
    rng = np.random.default_rng()
    for _ in range(20):
        bigrams, window = rng.integers(0, rng.integers(1, 9), rng.integers(1, 60)), int(rng.integers(1, 70))
        expected = [
            next((far for far in range(1, at % window + 1) if bigrams[at - far] == bigrams[at]), 0)
            for at in range(len(bigrams))
        ]
        assert repeat_distances(bigrams, np.arange(len(bigrams)) // window).tolist() == expected


def test_the_longest_window_that_the_encoding_takes_is_read(text_recipe, counting, measure):
    task, source = counting(text_recipe("decoder", "many", "evaluate.rare_below=1000000"))
    task.model.encoding.max_length = 30
    rows = measure("repeats", task, source, [16, 24, 50])
    assert "the encoding ends" in rows[0]["note"]
    assert {row["parameters"]["window"] for row in rows[1:]} == {24}


def test_without_a_training_split_no_bigram_is_rare(text_recipe, counting, measure, monkeypatch):
    task, source = counting(text_recipe("decoder", "many"))
    stream = source.stream
    monkeypatch.setattr(
        source, "stream", lambda split: stream(split)[:0] if split == "train" else stream(split)
    )
    with pytest.raises(InputError, match=r"repeats counts bigrams .* 'text' has no training split"):
        measure("repeats", task, source, LENGTHS)


def test_targets_depend_on_what_is_rare_and_not_on_the_seed(text_recipe, bigram, measure):
    def digest(*sets):
        return measure("repeats", *bigram(text_recipe("decoder", "many", *sets)), [50])[0]["targets"]

    assert digest("evaluate.rare_below=30") == digest("evaluate.rare_below=30", "seed=3")
    assert digest("evaluate.rare_below=30") != digest("evaluate.rare_below=1000000")
