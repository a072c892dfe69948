"""The corpus that the zoo writes: the same everywhere, and one in which a long context pays."""

import hashlib
import math
import re
from collections import Counter, defaultdict

import pytest

from zoo.data.text import SPLITS
from zoo.data.text.sample import chronicle, open_sample
from zoo.errors import InputError


@pytest.fixture(scope="module")
def corpus():
    sample = open_sample(100, 2000, 0)
    return {split: list(sample.documents(split)) for split in SPLITS}


def all_of(corpus):
    return [document for documents in corpus.values() for document in documents]


def test_sizes(corpus):
    assert {split: len(corpus[split]) for split in SPLITS} == {"train": 90, "valid": 5, "test": 5}
    for documents in corpus.values():
        assert all(2000 <= len(document.split()) < 2200 for document in documents)
    everything = all_of(corpus)
    assert len(set(everything)) == len(everything)


def test_a_document_depends_on_seed_split_and_number_only(corpus):
    assert list(open_sample(60, 2000, 0).documents("valid")) == corpus["valid"][:3]
    assert chronicle(2000, 0, "train", 5) == corpus["train"][5]
    assert chronicle(2000, 1, "train", 5) != corpus["train"][5]


def test_a_document_is_the_same_on_every_machine():
    # Golden: sha256 of a document, so that machines agree. Changes with any change to the sentences.
    text = chronicle(500, 0, "train", 0)
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN


GOLDEN = "6f569f53cfc2f1ea3ef36bb830ce7a4a3cdf40f092dc7772e15258b46082d557"


def test_a_long_context_lowers_the_loss(corpus):
    """On the words that come back after more than 64 others, a model that has counted the whole document so
    far beats an n-gram model, and one that has counted only the last 64 words of it."""
    trigrams, bigrams, unigrams = defaultdict(Counter), defaultdict(Counter), Counter()
    for document in corpus["train"]:
        words = document.split()
        for a, b, c in zip(["", "", *words], ["", *words], words, strict=False):
            trigrams[a, b][c] += 1
            bigrams[b][c] += 1
            unigrams[c] += 1
    total, kinds = sum(unigrams.values()), len(unigrams) + 1000

    def ngram(a, b, c):
        p = (unigrams[c] + 1) / (total + kinds)
        for counts in (bigrams[b], trigrams[a, b]):
            p = (counts[c] + 5 * p) / (counts.total() + 5)
        return p

    loss, scored = Counter(), 0
    for document in corpus["valid"]:
        words = document.split()
        for i in range(2, len(words)):
            a, b, c = words[i - 2 : i + 1]
            far, near = words[: max(0, i - 64)], words[max(0, i - 64) : i]
            if c not in far or c in near or unigrams[c] > total / 1000:
                continue
            scored += 1
            base = ngram(a, b, c)
            loss["n-gram"] -= math.log(base)
            loss["near"] -= math.log(0.8 * base + 0.2 * near.count(c) / len(near))
            loss["all"] -= math.log(0.8 * base + 0.2 * (far + near).count(c) / i)
    assert scored > 500
    assert loss["all"] / scored < loss["n-gram"] / scored - 0.5
    assert loss["all"] / scored < loss["near"] / scored - 0.5


def test_a_fact_predicts_its_next_mention(corpus):
    """The number of a box is always that of its earlier mention."""
    telling = re.compile(r"[Bb]ox of (\w+) (?:opened with the number|still opened at) (\d \d \d \d)")
    again = 0
    for document in corpus["train"]:
        mentioned = {}
        for name, code in telling.findall(document):
            again += name in mentioned
            assert mentioned.setdefault(name, code) == code
    assert again > 20


def test_too_small_is_an_input_error(recipe):
    for key, value in (("documents", 2), ("words", 49)):
        with pytest.raises(InputError, match=rf"data\.{key}: must be .* {value}"):
            recipe("text", f"data.{key}={value}")
