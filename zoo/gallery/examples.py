"""An example of each dataset that is generated, drawn by its own code and written for a reader."""

from __future__ import annotations

import functools
import html
from typing import Any

from zoo import registry
from zoo.errors import InputError

CORPUS = {"documents": 12, "words": 300, "vocab_size": 600}
"""A small corpus for questions in a text: they need no download."""
LENGTHS = {"answers": (28, 64, 128), "pointer": (16,), "text": (64,)}
"""Tokens of an example, by what examples are; the first in which one fits."""
OF_TEXT = (160, 320)
"""The same for questions in a text."""


@functools.cache
def example_of(name: str) -> str:
    """An example of a dataset as HTML: prompt and answer, or text; empty where it would need a download."""
    one = registry.datasets.describe(name)
    in_text = any(option.name == "corpus" for option in one.options)
    if one.gives not in LENGTHS or not one.source.startswith("generated"):
        return ""
    from zoo.data import open_data
    from zoo.recipe import resolve

    task = next(task for task in registry.tasks.all().values() if task.takes == one.gives)
    model = {"kind": task.kinds[0], "encoding": "none", "d_model": 8, "num_layers": 1, "num_heads": 1}
    rest = {"name": "example", "optimizer": {"lr": 1e-3}, "trainer": {"max_steps": 1}}
    for length in OF_TEXT if in_text else LENGTHS[one.gives]:
        data: dict[str, Any] = {"name": name, "sequence_length": length, "batch_size": 1, **_text_of(one)}
        try:
            recipe = resolve({"task": task.name, "model": model, "data": data, **rest})
            return _shown(open_data(recipe, write_cache=False), one.gives, length)
        except InputError:  # none fits, or a plugin's needs what is not here
            continue
    return ""


def _text_of(one: registry.Description) -> dict[str, Any]:
    """The keys of `data` that give a question in a text, or a generated text, a small corpus."""
    options = {option.name for option in one.options}
    if "corpus" in options:
        return {"corpus": "sample", "vocab_size": CORPUS["vocab_size"]}
    return {key: value for key, value in CORPUS.items() if key in options}


def _shown(source: Any, gives: str, length: int) -> str:
    if gives == "text":
        tokens = source.dataset("valid")[0]["tokens"]
        return _block(source.tokenizer.decode(tokens.tolist()))
    if gives == "pointer":
        drawn = source.examples("test", length, 1)[0]
        numbers, answer = drawn["tokens"].tolist(), int(drawn["answer"])
        marked = " ".join(f"<mark>{n}</mark>" if i == answer else str(n) for i, n in enumerate(numbers))
        return f'<pre class="example">{marked}</pre>\n\nThe answer is index {answer}, counted from 0.'
    answers = source.examples("test", length, 1)
    prompt, answer = answers.example(0)
    if source.tokenizer is not None:
        written = [source.tokenizer.decode(tokens) for tokens in (prompt, answer)]
        return _block(*written)
    from zoo.data.algorithmic.questions import FIRST

    def words(tokens: list[int]) -> str:
        return " ".join(
            ("pad", "begin", "ask")[token] if token < FIRST else str(token - FIRST) for token in tokens
        )

    return (
        _block(words(prompt) + " ", words(answer))
        + "\n\nNumbers are the task's symbols; a decoder is trained on what is marked."
    )


def _block(prompt: str, answer: str = "") -> str:
    # A blank line would end a block of HTML in Markdown.
    inside = (html.escape(text).replace("\n", "&#10;") for text in (prompt, answer))
    before, after = inside
    return f'<pre class="example">{before}' + (f"<mark>{after}</mark>" if answer else "") + "</pre>"
