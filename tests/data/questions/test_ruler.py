"""RULER's tasks: the text holds the answer, and comes from the corpus at any length."""

import re
from collections import Counter

import pytest
from tiny_recipes import tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from zoo import registry
from zoo.data import open_data
from zoo.data.questions.text import LONG_NAMES, NAMES
from zoo.data.text.tokenizer import TextTokenizer
from zoo.errors import InputError

NUMBER = re.compile(r"\nThe number of (\w+) is (\d+)\.\n")
LINE = re.compile(r"\nVAR (\w+) = (\w+)\n")


def needles(text):
    """The numbers in the lines of the names in the question."""
    asked = re.findall(r"\w+", re.search(r"\nWhat (?:is|are) the numbers? of ([\w, ]+)\?", text)[1])
    found = {name: [number for other, number in NUMBER.findall(text) if other == name] for name in asked}
    return " " + ", ".join(number for name in asked for number in found[name])


def variables(text):
    values = {re.search(r"Which variables are (\d+)\?", text)[1]}
    names = []
    for name, given in LINE.findall(text):
        if given in values:
            values.add(name)
            names.append(name)
    return " " + ", ".join(names)


def common(text, count=3):
    counted = Counter(text.partition("\n")[0].split())
    return " " + ", ".join(sorted((w for w, _ in counted.most_common(count)), key=list(counted).index))


CASES = {
    "single": ({"name": "needle"}, needles),
    "multi_key": ({"name": "needle", "kind": "multi_key", "digits": 7}, needles),
    "multi_value": ({"name": "needle", "kind": "multi_value", "needles": 3}, needles),
    "multi_query": ({"name": "needle", "kind": "multi_query", "needles": 2}, needles),
    "variables": ({"name": "variable_tracking"}, variables),
    "chains": ({"name": "variable_tracking", "hops": 2, "chains": 3}, variables),
    "common": ({"name": "common_words"}, common),
    "rare": ({"name": "common_words", "common": 2, "times": 3, "others": 1}, lambda text: common(text, 2)),
}


@pytest.fixture(scope="module")
def source_of(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    text = {"corpus": "sample", "documents": 12, "words": 300, "cache": str(cache), "vocab_size": 400}

    def source_of(data, *sets):
        return open_data(tiny({**text, "sequence_length": 320, **data}, *sets))

    return source_of


@pytest.fixture(params=CASES)
def case(request, source_of):
    data, solve = CASES[request.param]
    return source_of(data), solve


def test_a_reader_of_the_text_finds_the_answer(case):
    """In both splits, and in the shortest examples that fit."""
    source, solve = case
    least = source.examples("test", 400, 1).questions.smallest
    for split, length in (("train", 400), ("test", 400), ("train", least)):
        made = source.examples(split, length, 12)
        for prompt, answer in map(made.example, range(12)):
            assert len(prompt) + len(answer) - 1 <= length
            assert solve(source.tokenizer.decode(prompt)) == source.tokenizer.decode(answer)
    with pytest.raises(InputError, match=f"needs at least {least}"):
        source.examples("test", least - 1, 1)


def test_an_evaluated_example_fills_its_length(source_of):
    for data, _ in CASES.values():
        source = source_of(data)
        for prompt, answer in map(source.examples("test", 380, 12).example, range(12)):
            tokens = len(prompt) + len(answer) - 1
            # A list of words ends with a complete word.
            slack = 30 if source.recipe.data.name == "common_words" else 0
            assert 380 - slack <= tokens <= 380


def test_the_name_in_the_question_can_be_any_of_the_names(source_of):
    made = source_of(CASES["multi_key"][0]).examples("test", 400, 200)
    order = Counter()
    for prompt, _ in map(made.example, range(200)):
        text = made.questions.tokenizer.decode(prompt)
        names = [name for name, _ in NUMBER.findall(text)]
        order[names.index(re.search(r"What is the number of (\w+)", text)[1])] += 1
    assert sorted(order) == [0, 1, 2, 3] and min(order.values()) > 25


def test_invented_names_differ():
    assert len(set(NAMES)) == len(NAMES) > 700
    # A few come about in two ways.
    assert len(set(LONG_NAMES)) == len(LONG_NAMES) > 10_000


def test_the_tasks_work_with_a_tokenizer_of_bytes(source_of):
    """One of single bytes, for whose text each character is a token."""
    source = source_of(CASES["multi_query"][0])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE({c: i for i, c in enumerate([*alphabet, "<|endoftext|>", "<|mask|>"])}, []))
    words.pre_tokenizer, words.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    tokenizer = TextTokenizer(words)
    text = tokenizer.encode(source.tokenizer.decode(source.stream("test")[:]))
    for name, solve in (("needle", needles), ("variable_tracking", variables), ("common_words", common)):
        dataset = registry.datasets.load(name)()
        made = dataset.examples(text, tokenizer, "test", 700, 5, seed=0)
        for prompt, answer in map(made.example, range(5)):
            assert solve(tokenizer.decode(prompt)) == tokenizer.decode(answer)


def test_impossible_options_are_refused(source_of):
    for data, message in (
        ({"name": "needle", "needles": 10_000}, "data.needles: there are 768 names"),
        ({"name": "variable_tracking", "hops": 400, "chains": 2}, "data.hops: 802 variables"),
        ({"name": "common_words", "others": 5}, "data.others: 5 occurrences of other words are not fewer"),
        ({"name": "common_words", "common": 101}, "data.common: at most 100"),
        ({"name": "needle", "kind": "multikey"}, "data.kind"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            source_of(data)
