"""A recipe as plain values with the location of each key, and its YAML.

Scalars are those of YAML 1.2: `6e-4` is a number, `on` is text. Duplicate keys and tags are errors.
"""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from zoo.errors import InputError, Problem, shorten
from zoo.files import read_text

KeyPath = tuple[str | int, ...]

DEEPEST, MOST_VALUES = 50, 10_000
"""Levels and values of a recipe, those of an alias each time that it is used."""

NAMED = (("model", "encoding"), ("task",))
"""Text at these keys is short for a mapping with that name. A recipe that chooses another encoding or task
does not inherit the options of the base's."""


@dataclass
class Tree:
    """Plain values, and where keys were set: `recipes/x.yaml:8` or `--set seed=1`, by key path."""

    values: dict[str, Any]
    places: dict[KeyPath, str] = field(default_factory=dict)

    def location(self, path: KeyPath) -> str | None:
        """The location of a key, or of its nearest parent that has one."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path)

    def problem(self, path: KeyPath, message: str, involved: Iterable[KeyPath] = ()) -> Problem:
        """A problem with the value at a key path.

        Its location is that of the key, or the `--set` of another key involved, which made it wrong.
        """
        where = self.location(path)
        if not is_from_command_line(where):
            where = next(filter(is_from_command_line, map(self.location, involved)), where)
        return Problem(message, key=dotted(path) or None, where=where)

    def located(self, error: InputError) -> InputError:
        """An error with the location of each problem that names a key."""

        def place(one: Problem) -> str | None:
            return self.location(key_path(one.key)) if one.key and one.where is None else one.where

        return InputError(replace(one, where=place(one)) for one in error.problems)

    def put(self, path: KeyPath, value: Any, where: str | None) -> None:
        """Set one key, making the mappings above it.

        Raises:
            InputError: a value above the key is neither a mapping nor a list that long.
        """
        node: Any = self.values
        for depth, part in enumerate(path):
            above = path[:depth]
            if isinstance(node, list):
                if not str(part).isdecimal() or int(part) >= len(node):
                    message = f"{dotted(above)} is a list of {len(node)}; it has no index {part!r}"
                    raise InputError(Problem(message, key=dotted(path), where=where))
                path = (*above, part := int(part), *path[depth + 1 :])
            elif not isinstance(node, dict):
                message = f"{dotted(above)} is {describe_value(node)}, with no keys below it"
                raise InputError(Problem(message, key=dotted(path), where=where))
            if depth == len(path) - 1:
                node[part] = value
                break
            inner = node.get(part) if isinstance(node, dict) else node[part]
            if inner is None:
                inner = node[part] = {}
                self.places[path[: depth + 1]] = where
            elif isinstance(inner, str) and any(path[: len(root)] == root for root in NAMED):
                inner = node[part] = {"name": inner}
            node = inner
        self.places = {key: one for key, one in self.places.items() if key[: len(path)] != path}
        self.places[path] = where

    def lay_over(self, above: Tree, path: KeyPath = ()) -> None:
        """Change this tree by another: mappings merge key by key, every other value replaces."""
        self.places[path] = above.location(path)
        old, new = self.values, above.values
        for part in path:
            old, new = old[part], new[part]
        for key, value in new.items():
            here = (*path, key)
            if isinstance(old.get(key), dict) and isinstance(value, dict | None) and here not in NAMED:
                if value is not None:  # `model:` with nothing below it changes nothing
                    self.lay_over(above, here)
            else:
                self.put(here, value, above.location(here))
                self.places |= {at: one for at, one in above.places.items() if at[: len(here)] == here}


def is_from_command_line(where: str | None) -> bool:
    return where is not None and where.startswith("--set ")


def dotted(path: Iterable[str | int]) -> str:
    """A key path as in a recipe: `model.encoding.0.name`."""
    return ".".join(map(str, path))


def key_path(key: str) -> KeyPath:
    """The key path of a dotted key."""
    return tuple(int(part) if part.isdecimal() else part for part in key.split("."))


def describe_value(value: object) -> str:
    """A value for a message: '64' is called text, so that it is not taken for 64."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {shorten(value)!r}"
        case list() | tuple():
            return f"a list of {len(value)}" if value else "an empty list"
        case dict():
            return "a mapping"
    return shorten(str(value))


# Reading


def read_file(path: str | Path) -> Tree:
    """The tree of a YAML file.

    Raises:
        InputError: the file cannot be read as one mapping; lists every duplicate key and unreadable value.
    """
    shown = os.path.normpath(path)
    values, places = _read(read_text(Path(shown)), lambda line: f"{shown}:{line}")
    if not isinstance(values, dict):
        what = "the file is empty" if values is None else f"this is {describe_value(values)}"
        raise InputError(Problem(f"{what}; a recipe is a mapping of keys", where=f"{shown}:1"))
    return Tree(values, places)


def read_value(text: str, where: str) -> Any:
    """The value of a piece of YAML, by the rules of a recipe; empty text is null."""
    return _read(text, lambda line: where)[0]


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list] = {}  # noqa: RUF012  (PyYAML's own registry, filled below)
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            message = f"nested deeper than {DEEPEST} levels"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_TAG = "tag:yaml.org,2002:"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    # Python refuses to read an int of thousands of digits.
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,30})", list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def _read(text: str, location: Callable[[int], str]) -> tuple[Any, dict[KeyPath, str]]:
    """The values of YAML, and the location of each; `location` is given a line, counted from 1."""
    places: dict[KeyPath, str] = {(): location(1)}
    problems: list[Problem] = []

    def walk(node: yaml.Node, path: KeyPath, above: tuple[yaml.Node, ...] = ()) -> None:
        places.setdefault(path, location(node.start_mark.line + 1))
        if any(node is one for one in above):
            raise InputError(Problem("an alias refers to itself", dotted(path), places[path]))
        if len(places) > MOST_VALUES:
            raise InputError(Problem(f"more than {MOST_VALUES:,} values", where=location(1)))
        above = (*above, node)
        for index, item in enumerate(node.value if isinstance(node, yaml.SequenceNode) else ()):
            walk(item, (*path, index), above)
        lines: dict[str, int] = {}
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                key.tag = f"{_TAG}str"
                line, here = key.start_mark.line + 1, (*path, key.value)
                if key.value in lines:
                    message = f"duplicate key: here and on line {lines[key.value]}"
                    problems.append(Problem(message, key=dotted(here), where=location(line)))
                lines[key.value], places[here] = line, location(line)
                walk(value, here, above)

    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None, places
        walk(root, ())
        if problems:
            raise InputError(problems)
        return loader.construct_document(root), places
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).split("\n")[0]
        where = location(mark.line + 1 if mark else 1)
        raise InputError(Problem(f"not YAML: {shorten(reason, 200)}", where=where)) from error


# Writing


def to_yaml(values: dict[str, Any]) -> str:
    """A recipe's values as YAML; lists and mappings that hold no others are written on one line."""
    return _dump(values, default_flow_style=None, width=110)


def to_yaml_line(value: Any) -> str:
    """A plain value as one line of YAML, as `--set key=` takes it."""
    text = _dump(value, default_flow_style=True, width=math.inf)
    return text.removesuffix("\n").removesuffix("\n...")


def _dump(value: Any, **style: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **style)


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or 1.2 would read as another type."""

    yaml_implicit_resolvers = copy.deepcopy(yaml.SafeDumper.yaml_implicit_resolvers)
    for _first, _resolvers in _Loader.yaml_implicit_resolvers.items():
        yaml_implicit_resolvers.setdefault(_first, []).extend(_resolvers)

    def ignore_aliases(self, data: Any) -> bool:
        return True
