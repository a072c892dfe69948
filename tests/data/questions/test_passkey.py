"""Passkeys: a solver that reads the text finds the key, which stands in it once."""

import re
from collections import Counter

import numpy as np
import pytest
import torch
from tiny_recipes import tiny

from zoo.data import open_data
from zoo.errors import InputError

SENTENCE = re.compile(r"\nThe pass key is (\d+)\. Remember it\.\n")


@pytest.fixture(scope="module")
def source_of(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")

    def source_of(*sets):
        text = {"corpus": "sample", "documents": 12, "words": 300, "cache": str(cache), "vocab_size": 400}
        return open_data(tiny({"name": "passkey", **text, "sequence_length": 96}, *sets))

    return source_of


def read(source, tokens, targets):
    """The text that is shown up to the question's end, and the answer."""
    asked = int((targets >= 0).int().argmax())
    answer = targets[targets >= 0]
    return source.tokenizer.decode(tokens[: asked + 1]), source.tokenizer.decode(answer)


@pytest.mark.parametrize(
    ("split", "digits", "length"), [("valid", 5, 60), ("train", 5, 96), ("test", 7, 500)]
)
def test_the_text_holds_the_key_once(source_of, split, digits, length):
    source = source_of(f"data.digits={digits}")
    batch = source.examples(split, length, 40).batch(range(40))
    for tokens, targets in zip(batch["tokens"], batch["targets"], strict=True):
        text, answer = read(source, tokens, targets)
        assert SENTENCE.findall(text) == [answer]
        assert text.count(answer) == 1 and len(answer) == digits
        assert text.endswith("\nWhat is the pass key? The pass key is ")


def test_an_evaluated_sequence_fills_its_length_exactly(source_of):
    for length in (60, 97, 300):
        batch = source_of().examples("test", length, 16).batch(range(16))
        assert batch["tokens"].shape == batch["targets"].shape == (16, length)
        # The targets are the last tokens, each digit after the one before.
        assert ((batch["targets"] >= 0).nonzero()[:, 1].view(16, 5) == torch.arange(length - 5, length)).all()
        assert (batch["targets"][:, -5:-1] == batch["tokens"][:, -4:]).all()


def test_the_text_around_the_sentence_is_one_window_of_the_text_cut_between_words(source_of):
    source = source_of()
    stream = source.stream("test")
    pieces = source.tokenizer.token_bytes()
    whole = b" ".join(b"%d" % token for token in stream[:])
    for prompt, _ in map(source.examples("test", 120, 30).example, range(30)):
        task = source.examples("test", 120, 1).questions
        start = next(i for i in range(len(prompt)) if prompt[i : i + len(task.before)] == task.before)
        stop = start + len(task.before) + 5 + len(task.after)
        text = [*prompt[:start], *prompt[stop : len(prompt) - len(task.question)]]
        assert b" ".join(b"%d" % token for token in text) in whole
        opened = pieces[prompt[stop]][:1]
        assert start == 0 or stop == len(prompt) - len(task.question) or opened.isspace() or not opened


def test_the_sentence_stands_anywhere(source_of):
    made = source_of().examples("test", 300, 400)
    distance = made.batch(range(400))["distance"].numpy()
    # Uniform depth, moved to the next border between words.
    counts = np.histogram(distance, 5, range=(distance.min(), distance.max()))[0]
    assert counts.min() > 45 and distance.max() - distance.min() > 200


def test_the_distance_is_from_the_position_that_predicts_the_first_digit_to_that_digit(source_of):
    source = source_of()
    for example in map(source.examples("test", 150, 20).__getitem__, range(20)):
        first = int((example["targets"] >= 0).int().argmax())
        assert example["tokens"][first - example["distance"]] == example["targets"][first]


def test_keys_are_uniform_in_every_digit(source_of):
    made = source_of().examples("test", 60, 600)
    answers = [made.example(index)[1] for index in range(600)]
    for place in range(5):
        counts = Counter(answer[place] for answer in answers)
        assert len(counts) == 10 and min(counts.values()) > 30


def test_training_has_all_lengths_up_to_its_own_and_pads_them(source_of):
    source = source_of()
    batch = source.dataset("train").batch(range(300))
    assert batch["tokens"].shape == (300, 96)
    ends = (batch["targets"] >= 0).int().cumsum(1).argmax(1) + 1
    least = source.dataset("train").questions.tokens(1)
    assert ends.min() < least + 5 and ends.max() > 92
    assert all((row[end:] == 0).all() for row, end in zip(batch["tokens"], ends, strict=True))


def test_the_splits_are_those_of_the_text(source_of):
    source = source_of()
    assert len({source.stream(split)[:50].tobytes() for split in ("train", "valid", "test")}) == 3
    for split in ("train", "valid", "test"):
        assert source.examples(split, 80, 1).questions.stream is source.stream(split)


def test_impossible_lengths_are_refused(source_of):
    source = source_of()
    with pytest.raises(InputError, match=r"20 tokens are too few for passkey, which needs at least \d+"):
        source.examples("test", 20, 4)
    with pytest.raises(InputError, match=r"^data\.sequence_length: 20 tokens are too few for passkey"):
        source_of("data.sequence_length=20").dataset("train")
    held = len(source.stream("test"))
    assert len(source.examples("test", held, 1)[0]["tokens"]) == held
    with pytest.raises(InputError, match=f"the test text has only {held} tokens"):
        source.examples("test", 2 * held, 4)


def test_the_fingerprint_tells_the_text_the_tokenizer_and_the_digits(source_of):
    plain = source_of().fingerprint
    assert plain == source_of("seed=3").fingerprint
    assert plain["corpus"] != source_of("data.digits=6").fingerprint["corpus"]
    assert plain["corpus"] != source_of("data.words=310").fingerprint["corpus"]
    assert plain["tokenizer"] != source_of("data.vocab_size=410").fingerprint["tokenizer"]
