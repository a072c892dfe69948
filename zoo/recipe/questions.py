"""Datasets inside other keys, with their options: what protocol prompts asks, and what a mix is made of."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from zoo import registry
from zoo.errors import nearest, shorten
from zoo.field_types import Section, Text
from zoo.recipe.error_messages import explain_validation_error
from zoo.recipe.located_tree import KeyPath
from zoo.recipe.sections import config_class
from zoo.registry import Description


class QuestionsConfig(Section):
    """What all questions have that can be asked in any text."""

    name: Text


def questions_section(spec: Any) -> Section:
    """Questions with all their options, of a name, or a mapping of a name and options.

    Raises:
        ValueError: it is neither, or an option that is not theirs.
    """
    given = spec if isinstance(spec, dict) else {"name": spec}
    asked = {name: one for name, one in registry.datasets.all().items() if one.text_options}
    name = given.get("name")
    if not isinstance(name, str) or name not in asked:
        near = nearest(name, asked) if isinstance(name, str) else None
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(sorted(asked))}"
        raise ValueError(f"no questions in a text: {shorten(repr(name), 100)}; {hint}")
    about = asked[name]
    if foreign := [key for key in about.text_options if key in given]:
        raise ValueError(f"{name}: {', '.join(foreign)}: they are asked in the text and tokens of the run")
    return _with_options(about, given)


def corpus_section(spec: Any) -> Section:
    """A text corpus with all its options, of a name, or a mapping of a name and options.

    Raises:
        ValueError: it is neither, or an option that is not its own.
    """
    given = spec if isinstance(spec, dict) else {"name": spec}
    known = {name: one for name, one in registry.datasets.all().items() if one.gives == "text"}
    name = given.get("name")
    if not isinstance(name, str) or name not in known:
        near = nearest(name, known) if isinstance(name, str) else None
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(sorted(known))}"
        raise ValueError(f"no text corpus: {shorten(repr(name), 100)}; {hint}")
    if foreign := [key for key in ("cache", "vocab_size", "tokenizer") if key in given]:
        raise ValueError(f"{name}: {', '.join(foreign)}: the mix has one for all, under `data`")
    return _with_options(known[name], given)


def mix_faults(of: Any, weights: Any) -> dict[KeyPath, str]:
    """What is wrong with the corpora of a mix and their weights, by the key."""
    if not isinstance(of, list | tuple) or len(of) < 2:
        return {("data", "of"): "must be a list of two or more corpora"}
    faults: dict[KeyPath, str] = {}
    for number, one in enumerate(of):
        try:
            corpus_section(one)
        except ValueError as error:
            faults["data", "of", number] = str(error)
    if weights is not None and len(weights) != len(of):
        faults["data", "weights"] = f"{len(weights)} weights for {len(of)} corpora in data.of"
    return faults


def _with_options(about: Description, given: dict[str, Any]) -> Section:
    name = about.name
    config = config_class(QuestionsConfig, about)
    try:
        return config.model_validate(given)
    except ValidationError as error:
        faults = explain_validation_error(error, given, {(): config.model_fields})
        said = (f"{'.'.join(map(str, path))}: {text}" for path, text in faults.items())
        raise ValueError(f"{name}: {'; '.join(said)}") from None
