"""A prompt of an imported model begins with one start token, as `transformers` has it."""

import pytest
from tokenizers import processors

from zoo.data.text.tokenizer import TextTokenizer, train_tokenizer
from zoo.generation.text import TextGenerator
from zoo.tasks import build_task

START = "<s>"


@pytest.fixture
def generator_of(recipe):
    """A generator whose tokenizer puts a start token before a text: `generator_of(imported=True)`."""
    inner = train_tokenizer(["a few words of a text, and a few more of them"] * 20, 290).tokenizer
    inner.add_special_tokens([START])
    special = [(START, inner.token_to_id(START))]
    inner.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=special)
    tokenizer = TextTokenizer(inner)

    def generator_of(imported, *sets):
        task = build_task(recipe("text", *sets), tokenizer.vocab_size).eval()
        task.card = {"imported": {"from": "elsewhere"}} if imported else {}
        return TextGenerator(task, tokenizer)

    return generator_of


def test_a_prompt_has_one_start_token_however_it_is_written(generator_of):
    generator = generator_of(True)
    start, words = generator.tokenizer.tokenizer.token_to_id(START), "a few words"
    plain = generator.tokenizer.encode(words).tolist()
    for prompt, expected in (
        (words, [start, *plain]),
        (START + words, [start, *plain]),
        ("", [start]),
        (START, [start]),
    ):
        assert generator.prompt_tokens(prompt) == expected
    assert generator.prompt_tokens(words) == generator.tokenizer.tokenizer.encode(words).ids


def test_models_trained_here_and_start_token_none_have_no_start_token(generator_of):
    for generator in (generator_of(False), generator_of(True, "evaluate.start_token=none")):
        assert generator.prompt_tokens("a few") == generator.tokenizer.encode("a few").tolist()
        assert generator.prompt_tokens("") == [generator.tokenizer.end_token]


def test_the_start_token_counts_in_the_length_of_the_prompt(generator_of):
    generator = generator_of(True, "model.encoding=learned")
    (one,) = generator.generate(["a few words"], 100)
    assert one.ended or len(generator.prompt_tokens("a few words")) + one.tokens == generator.longest + 1
