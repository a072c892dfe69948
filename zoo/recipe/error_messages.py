"""What a validation error means in the recipe's own words: what was expected, and the nearest valid name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from zoo.errors import shorten
from zoo.recipe.located_tree import KeyPath, describe_value

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "null",
}
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


MANY = 100
"""Wrong keys beyond this number get no hints: looking for them would take seconds."""
LONGEST_WORD = 200


def nearest(word: object, valid: Iterable[str]) -> str | None:
    """The valid name most like a word, or None when none is near."""
    if len(str(word)) > LONGEST_WORD:
        return None
    by_lower = {name.lower(): name for name in valid}
    near = difflib.get_close_matches(str(word).lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None


def explain_validation_error(
    error: ValidationError, given: Any, keys: Mapping[KeyPath, Iterable[str]]
) -> dict[KeyPath, str]:
    """One message for each key path that is wrong.

    `given` is what was validated; `keys` are the names that each mapping may have, by its path.
    """
    found: dict[KeyPath, list[dict[str, Any]]] = {}
    for detail in error.errors(include_url=False):
        found.setdefault(_path(detail, given), []).append(detail)
    # A list that fits no member of a union for one of its items: the item is to blame, not the list.
    above = {path[:end] for path in found for end in range(len(path))}
    to_blame = [path for path in found if path not in above]
    if len(to_blame) > MANY:
        # One that is missing or of the wrong type says so; hints are for those who mistyped some.
        return {path: found[path][0]["msg"] for path in to_blame}
    return {path: _message(path, found[path], keys) for path in to_blame}


def unknown_key(path: KeyPath, valid: Iterable[str], elsewhere: Iterable[KeyPath] = ()) -> str:
    """The message for a key that its mapping does not have."""
    valid = list(valid)
    word = str(path[-1])
    for other in elsewhere:
        if other[-1] == word:
            return f"unknown key here; did you mean {'.'.join(map(str, other))!r}?"
    near = nearest(word, valid)
    if near:
        return f"unknown key; did you mean {near!r}?"
    return f"unknown key; there are: {', '.join(valid)}"


def _path(detail: dict[str, Any], given: Any) -> KeyPath:
    """The location of an error without what pydantic adds to it: members of unions."""
    path: list[str | int] = []
    parts = list(detail["loc"])
    for index, part in enumerate(parts):
        inside = (isinstance(given, Mapping) and part in given) or (
            isinstance(given, list | tuple) and isinstance(part, int) and part < len(given)
        )
        if inside:
            path.append(part)
            given = given[part]
        elif index == len(parts) - 1 and detail["type"] == "missing":
            path.append(part)
    return tuple(path)


def _message(path: KeyPath, details: list[dict[str, Any]], keys: Mapping[KeyPath, Iterable[str]]) -> str:
    first = details[0]
    kind, context, value = first["type"], first.get("ctx", {}), first["input"]
    if kind == "missing":
        return "missing"
    if kind == "extra_forbidden":
        elsewhere = ((*owner, name) for owner, names in keys.items() if owner != path[:-1] for name in names)
        return unknown_key(path, keys.get(path[:-1], ()), elsewhere)
    # A union fails once for each of its members: what would have fitted is all of them.
    bounds = [detail for detail in details if detail["type"] in _BOUNDS]
    if bounds:
        limits = [
            f"{word} {bound['ctx'][limit]}" for bound in bounds for word, limit in [_BOUNDS[bound["type"]]]
        ]
        return f"must be {' or '.join(dict.fromkeys(limits))}, got {describe_value(bounds[0]['input'])}"
    literals = [
        name
        for detail in details
        if detail["type"] == "literal_error"
        for name in _quoted(detail["ctx"]["expected"])
    ]
    if literals and isinstance(value, str):
        others = {_EXPECTED[detail["type"]] for detail in details if detail["type"] in _EXPECTED}
        if "true or false" in others:
            literals += ["true", "false"]
        near = nearest(value, literals)
        hint = f"; did you mean {near!r}?" if near else ""
        expected = [f"one of {', '.join(literals)}" if len(literals) > 1 else literals[0]]
        expected += sorted(others - {"true or false", "text"})
        return f"must be {' or '.join(expected)}, got {shorten(value)!r}{hint}"
    if kind in ("too_long", "too_short"):
        limit = context.get("max_length", context.get("min_length"))
        side = "most" if kind == "too_long" else "least"
        return (
            f"must hold at {side} {limit} value{'s' if limit != 1 else ''}, holds {context['actual_length']}"
        )
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "string_pattern_mismatch":
        return f"may hold letters, digits and . _ - only, got {shorten(str(value))!r}"
    expected = [_EXPECTED[detail["type"]] for detail in details if detail["type"] in _EXPECTED]
    expected += [f"one of {', '.join(literals)}"] if literals else []
    if not expected:
        return first["msg"]
    if "a number" in expected:
        expected = [one for one in expected if one != "a whole number"]
    message = f"must be {' or '.join(dict.fromkeys(expected))}, got {describe_value(value)}"
    if expected == ["a list"] and isinstance(value, str | int | float) and not isinstance(value, bool):
        message += f"; write [{shorten(str(value))}]"
    return message


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text) or re.findall(r"[^\s,]+", text.replace(" or ", " "))
