"""Validation errors in the words of a recipe: the expected value, and the nearest valid name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from zoo.errors import hint, nearest, shorten
from zoo.recipe.tree import KeyPath, describe_value, dotted

Faults = dict[KeyPath, str]
"""Messages by key path."""

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "none_required": "null",
}
"""Words for pydantic's messages about Python's types."""


def explain_validation_error(
    error: ValidationError, given: Any, keys: Mapping[KeyPath, Iterable[str]]
) -> Faults:
    """One message for each key path that is wrong.

    `given` is the validated value; `keys` are the names that each mapping may have, by its path.
    """
    found: dict[KeyPath, list[dict[str, Any]]] = {}
    for detail in error.errors(include_url=False):
        found.setdefault(_path(detail, given), []).append(detail)
    # A list that fits no member of a union for one of its items: the item is to blame, not the list.
    above = {path[:end] for path in found for end in range(len(path))}
    return {path: _message(path, details, keys) for path, details in found.items() if path not in above}


def _path(detail: dict[str, Any], given: Any) -> KeyPath:
    """The location of an error without the members of unions, which pydantic adds to it."""
    path: list[str | int] = []
    for part in detail["loc"]:
        inside = (isinstance(given, Mapping) and part in given) or (
            isinstance(given, list | tuple) and isinstance(part, int) and part < len(given)
        )
        if inside:
            path.append(part)
            given = given[part]
    if detail["type"] == "missing":
        path.append(detail["loc"][-1])
    return tuple(path)


def _expected(detail: dict[str, Any]) -> str:
    if detail["type"] == "too_short":
        return f"a list of at least {detail['ctx']['min_length']}"
    return _EXPECTED.get(detail["type"]) or detail["msg"]


def _message(path: KeyPath, details: list[dict[str, Any]], keys: Mapping[KeyPath, Iterable[str]]) -> str:
    kind, value, text = details[0]["type"], details[0]["input"], details[0]["msg"]
    if kind == "missing":
        return "missing"
    if kind == "value_error":
        return text.removeprefix("Value error, ")
    if kind == "string_pattern_mismatch":
        return f"may hold letters, digits and . _ - only, got {shorten(str(value))!r}"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        valid = [*keys.get(path[:-1], ())]
        elsewhere = (dotted((*owner, path[-1])) for owner, names in keys.items() if path[-1] in names)
        there = next(elsewhere, None)
        return f"unknown key; {f'did you mean {there!r}?' if there else hint(str(path[-1]), valid)}"
    # A union fails once for each of its members. A limit that is not kept says more than a wrong type.
    literals = [one["ctx"]["expected"] for one in details if one["type"] == "literal_error"]
    limits = [one for one in details if one["type"] not in (*_EXPECTED, "literal_error")]
    texts = (_expected(one) for one in limits or details)
    expected = dict.fromkeys(text.removeprefix("Input should be ") for text in texts)
    if "a number" in expected:
        expected.pop("a whole number", None)
    message = f"must be {' or '.join(expected)}, got {describe_value(value)}"
    if [*expected] == ["a list"] and isinstance(value, str | int | float) and not isinstance(value, bool):
        return f"{message}; write [{shorten(str(value))}]"
    near = nearest(str(value), re.findall("'([^']*)'", " ".join(literals)))
    return f"{message}; did you mean {near!r}?" if near else message
