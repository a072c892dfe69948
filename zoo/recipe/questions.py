"""What protocol prompts asks: datasets whose questions can be asked in any text, with their options."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from zoo import registry
from zoo.errors import nearest, shorten
from zoo.field_types import Section, Text
from zoo.recipe.error_messages import explain_validation_error
from zoo.recipe.sections import config_class


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
    config = config_class(QuestionsConfig, about)
    try:
        return config.model_validate(given)
    except ValidationError as error:
        faults = explain_validation_error(error, given, {(): config.model_fields})
        said = (f"{'.'.join(map(str, path))}: {text}" for path, text in faults.items())
        raise ValueError(f"{name}: {'; '.join(said)}") from None
