"""RULER's tasks: the text holds the answer, and comes from the corpus at any length."""

import hashlib
import re
from collections import Counter
from functools import partial
from itertools import pairwise

import pytest
from tiny_recipes import tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from zoo import registry
from zoo.data import open_data
from zoo.data.draws import Chance, Draws
from zoo.data.questions.text import LONG_NAMES, NAMES, questions_section
from zoo.data.text.tokenizer import TextTokenizer
from zoo.errors import InputError

NUMBER = re.compile(r"\nThe (?:number|uuid) of ([\w-]+) is ([\w-]+)\.\n")
LINE = re.compile(r"\nVAR (\w+) = (\w+)\n")


def needles(text):
    """The numbers in the lines of the names in the question."""
    question = r"\nWhat (?:is|are) the (?:number|uuid)s? of ([\w, -]+)\?"
    asked = re.search(question, text)[1].split(", ")
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


def frequent(text):
    """The three words after the dots; no two words are as frequent as one of them."""
    counted = Counter(text.partition("\n")[0].split()).most_common(5)
    assert all(more > fewer for (_, more), (_, fewer) in pairwise(counted))
    return " " + ", ".join(word for word, _ in counted[1:4])


UUIDS = {"haystack": "needles", "names": "uuids", "values": "uuids"}
CASES = {
    "single": ({"name": "needle"}, needles),
    "multi_key": ({"name": "needle", "kind": "multi_key", "digits": 7}, needles),
    "multi_value": ({"name": "needle", "kind": "multi_value", "needles": 3}, needles),
    "multi_query": ({"name": "needle", "kind": "multi_query", "needles": 2}, needles),
    "variables": ({"name": "variable_tracking"}, variables),
    "chains": ({"name": "variable_tracking", "hops": 2, "chains": 3}, variables),
    "common": ({"name": "common_words"}, common),
    "noise": ({"name": "needle", "haystack": "noise", "digits": 7}, needles),
    "uuids": ({"name": "needle", "kind": "multi_value", "needles": 2, "values": "uuids"}, needles),
    "stack": ({"name": "needle", "haystack": "needles"}, needles),
    "uuid_stack": ({"name": "needle", **UUIDS}, needles),
    "stacked_values": ({"name": "needle", "kind": "multi_value", "haystack": "needles"}, needles),
    "noisy_chains": ({"name": "variable_tracking", "chains": 2, "hops": 2, "haystack": "noise"}, variables),
    "frequent": ({"name": "frequent_words"}, frequent),
    "flat": ({"name": "frequent_words", "alpha": 0.7}, frequent),
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
    # Lists of words and of lines end with a complete one.
    slack = {"common": 30, "rare": 30, "frequent": 30, "flat": 60}
    slack |= {"noise": 60, "noisy_chains": 60, "stack": 40, "stacked_values": 40, "uuid_stack": 110}
    for case, (data, _) in CASES.items():
        source = source_of(data)
        for prompt, answer in map(source.examples("test", 380, 5).example, range(5)):
            tokens = len(prompt) + len(answer) - 1
            assert 380 - slack.get(case, 0) <= tokens <= 380


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
        ({"name": "needle", "haystack": "hay"}, "data.haystack"),
        ({"name": "frequent_words", "alpha": 0}, "data.alpha"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            source_of(data)


def test_impossible_lengths_are_refused(source_of):
    source = source_of({"name": "needle"})
    with pytest.raises(InputError, match=r"^data\.sequence_length: \d+ tokens are too few for needle"):
        source_of({"name": "needle", "sequence_length": 20}).dataset("train")
    with pytest.raises(InputError, match="the test text has only"):
        source.examples("test", 10**6, 1)
    with pytest.raises(InputError, match=r"there are words for \d+ tokens"):
        source_of({"name": "common_words"}).examples("test", 10**6, 1)


def test_the_fingerprint_tells_the_options(source_of):
    one, other = (source_of({"name": "needle", "digits": digits}).fingerprint for digits in (5, 6))
    assert one["corpus"].startswith("needle, kind single, needles 4, digits 5, format 1, in ")
    assert one["corpus"] != other["corpus"] and one["tokenizer"] == other["tokenizer"]
    later = source_of({"name": "needle", "haystack": "noise"}).fingerprint["corpus"]
    assert later.startswith("needle, kind single, needles 4, digits 5, haystack noise, format 1, in ")


def test_a_haystack_of_needles_is_like_the_needle(source_of):
    """Neither place nor form of a line tells that its name is asked for, and no other has this name."""
    for options, name, value in (
        ({"haystack": "needles", "digits": 7}, r"[a-z]{5,11}", r"[1-9]\d{6}"),
        (UUIDS, *[r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"] * 2),
    ):
        made = source_of({"name": "needle", **options}).examples("test", 700, 50)
        places = []
        for prompt, _ in map(made.example, range(50)):
            text = made.questions.tokenizer.decode(prompt)
            found = NUMBER.findall(text)
            assert all(re.fullmatch(name, one) and re.fullmatch(value, two) for one, two in found)
            asked = [one in text.partition("\nWhat ")[2] for one, _ in found]
            assert sum(asked) == 1 and len(found) >= 4
            places.append(asked.index(True) / (len(found) - 1))
        # The mean of 50 uniform places has a standard deviation of 0.04.
        assert 0.35 < sum(places) / 50 < 0.65 and min(places) < 0.15 and max(places) > 0.85


def test_published_tasks_are_asked_by_their_names(source_of):
    """All of RULER but its questions about paragraphs."""
    asked = {name: solve for _, (data, solve) in CASES.items() for name in [data["name"]]}
    names = [f"niah_{one}" for one in ("single_1", "single_2", "single_3", "multivalue", "multiquery")]
    for preset in (*names, "niah_multikey_1", "niah_multikey_2", "niah_multikey_3", "vt", "cwe", "fwe"):
        section = questions_section(preset)
        source = source_of(section.model_dump(exclude_unset=True))
        made = source.examples("test", 2400 if preset == "cwe" else 700, 2)
        solve = partial(common, count=10) if preset == "cwe" else asked[section.name]
        for prompt, answer in map(made.example, range(2)):
            assert solve(source.tokenizer.decode(prompt)) == source.tokenizer.decode(answer)


def test_a_haystack_may_be_longer_than_the_corpus(source_of):
    for case in ("noise", "stack", "frequent"):
        source = source_of(CASES[case][0])
        length = len(source.stream("test")) + 10_000
        prompt, answer = source.examples("test", length, 1).example(0)
        assert length - 60 <= len(prompt) + len(answer) - 1 <= length


def test_added_options_leave_the_examples_of_others_as_they_were():
    """Stored measurements scored these: the digests are of the texts before there was another haystack."""
    for name, options, digest in (
        ("needle", {"kind": "multi_key"}, "d1e184ec2ec1"),
        ("needle", {"kind": "multi_value"}, "812e93bb65fa"),
        ("needle", {"kind": "multi_query"}, "1a36c6627fe7"),
        ("variable_tracking", {"chains": 2}, "0da9805d1d65"),
    ):
        dataset = registry.datasets.load(name)(**options)
        drawn = [dataset.draw_text(Chance(Draws("test"), row)) for row in range(20)]
        assert hashlib.sha256(repr(drawn).encode()).hexdigest()[:12] == digest
