"""Datasets inside other keys, with their options: questions of protocol `prompts`, and corpora of a mix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from zoo import registry
from zoo.errors import nearest, shorten
from zoo.fields import Section
from zoo.recipe.error_messages import explain_validation_error
from zoo.recipe.sections import NamedConfig, config_class
from zoo.recipe.tree import dotted
from zoo.registry import Description


def questions_section(spec: Any) -> Section:
    """Questions with all their options, of a name, or a mapping of a name and options.

    Raises:
        ValueError: the name is not that of questions in a text, or an option is wrong.
    """
    asked = {name: one for name, one in registry.datasets.all().items() if one.text_options}
    reason = "they are asked in the text and tokens of the run"
    return _section(spec, asked, "questions in a text", lambda about: about.text_options, reason)


def corpus_section(spec: Any) -> Section:
    """A text corpus with all its options, of a name, or a mapping of a name and options.

    Raises:
        ValueError: the name is not that of a text corpus, or an option is wrong.
    """
    corpora = {name: one for name, one in registry.datasets.all().items() if one.gives == "text"}
    shared = ("cache", "vocab_size", "tokenizer")
    return _section(spec, corpora, "text corpus", lambda _: shared, "the mix has one for all, under `data`")


def _section(
    spec: Any,
    known: Mapping[str, Description],
    what: str,
    foreign: Callable[[Description], Sequence[str]],
    reason: str,
) -> Section:
    """The options of a dataset among the known; `foreign` are the options that are set elsewhere."""
    given = spec if isinstance(spec, dict) else {"name": spec}
    name = given.get("name")
    if not isinstance(name, str) or name not in known:
        near = nearest(name, known) if isinstance(name, str) else None
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(sorted(known))}"
        raise ValueError(f"no {what}: {shorten(repr(name), 100)}; {hint}")
    if keys := [key for key in foreign(known[name]) if key in given]:
        raise ValueError(f"{name}: {', '.join(keys)}: {reason}")
    config = config_class(NamedConfig, known[name])
    try:
        return config.model_validate(given)
    except ValidationError as error:
        faults = explain_validation_error(error, given, {(): config.model_fields})
        raise ValueError(
            f"{name}: {'; '.join(f'{dotted(at)}: {text}' for at, text in faults.items())}"
        ) from None
