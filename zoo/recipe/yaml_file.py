"""Reading YAML with the location of every key, and writing a recipe as YAML that is read back to the same.

PyYAML alone reads `6e-4` as text and `on` as true, lets a duplicated key win in silence, and forgets where a
value stood. Here scalars are those of YAML 1.2, duplicates are problems, and every key has a location.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from zoo.errors import InputError, Problem, shorten
from zoo.files import read_text
from zoo.recipe.located_tree import (
    MAX_DEPTH,
    MAX_VALUES,
    KeyPath,
    Located,
    describe_value,
    dotted,
    scalar_fault,
)

if TYPE_CHECKING:
    from zoo.recipe.schema import Recipe

MAX_BYTES = 256 << 10


def read_file(path: str | Path) -> Located:
    """The tree of a YAML file.

    Raises:
        InputError: the file cannot be read as one mapping; with every key and scalar that is no YAML of ours.
    """
    shown = os.path.normpath(path)
    tree = _Reader(lambda line: f"{shown}:{line}").read(read_text(Path(shown), MAX_BYTES))
    if not isinstance(tree.value, dict):
        what = "the file is empty" if tree.value is None else f"this is {describe_value(tree.plain())}"
        raise InputError(Problem(f"{what}; a recipe is a mapping of keys", where=f"{shown}:1"))
    return tree


def read_value(text: str, where: str) -> Any:
    """The value that a piece of YAML means, read by the rules of a recipe; nothing is null."""
    return _Reader(lambda line: where).read(text).plain()


class _Loader(yaml.SafeLoader):
    """Composes nodes, within bounds, with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list] = {}  # noqa: RUF012  (PyYAML's own registry, filled below)
    nodes = 0
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node:
        self.nodes += 1
        if self.nodes > MAX_VALUES:
            raise _too_large("too many values", self.peek_event())
        if self.depth >= MAX_DEPTH:
            raise _too_large("nested too deeply", self.peek_event())
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def _too_large(what: str, at: yaml.Event | yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=f"{what}: this is no recipe", problem_mark=at.start_mark)


_INT = r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+"
_FLOAT = (
    r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_TAG = "tag:yaml.org,2002:"
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)

RESOLVERS: dict[str, list] = _Loader.yaml_implicit_resolvers


def _int(text: str) -> int:
    plain = text.replace("_", "")
    return int(plain, 0) if plain[:2] in ("0o", "0x") else int(plain)


_SCALARS: dict[str, Callable[[str], Any]] = {
    "null": lambda text: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": _int,
    "float": lambda text: float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan")),
    "str": str,
}

_PLAIN_WORDS = (
    ("found character '\\t'", "a tab: indent and separate with spaces"),
    ("found character", "a value cannot begin with a special character: put it in quotes"),
    ("expected the node content", "a value cannot begin with a special character: put it in quotes"),
    ("found undefined alias", "a value that begins with * must stand in quotes"),
    ("mapping values are not allowed", "a colon where none can be: a value with ': ' in it needs quotes, "
     "keys the same indentation, a colon above a space after it"),
    ("could not find expected ':'", "no `key: value`; a space must stand after the colon"),
    ("expected ',' or", "a list or mapping lacks a comma or its closing bracket"),
    ("found unexpected end of stream", "a quote is not closed"),
    ("expected <block end>", "the indentation fits no line above, or text follows a value that has ended"),
    ("but found another document", "a second document begins (---): a recipe is one"),
)  # fmt: skip
"""Parts of PyYAML's messages, which are about its tokens, and what a user has to change."""


class _Reader:
    """Turns YAML into a tree, and collects the problems of its keys and scalars.

    Args:
        location: of a line, counted from 1.
    """

    def __init__(self, location: Callable[[int], str]):
        self.location = location
        self.problems: list[Problem] = []
        self.built = itertools.count()

    def read(self, text: str) -> Located:
        try:
            loader = _Loader(text)
            try:
                node = loader.get_single_node()
            finally:
                loader.dispose()
            tree = Located(None, self.location(1)) if node is None else self.build(node, ())
        except yaml.MarkedYAMLError as error:
            # An open bracket or quote shows where the next thing begins; what is at fault is where it began.
            problem = error.problem or error.context or ""
            opened = problem.startswith(("expected ',' or", "found unexpected end", "could not find"))
            mark = (error.context_mark if opened else None) or error.problem_mark or error.context_mark
            words = (plain for part, plain in _PLAIN_WORDS if part in problem)
            self.note(next(words, shorten(problem, 200)), mark, prefix="not YAML: ")
            raise InputError(self.problems) from error
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            # Of numbers in a directive or an escape PyYAML takes any, and fails on some.
            line = text[: getattr(error, "position", 0)].count("\n") + 1
            reason = shorten(getattr(error, "reason", None) or str(error), 200)
            raise InputError(Problem(f"not YAML: {reason}", where=self.location(line))) from error
        if self.problems:
            raise InputError(self.problems)
        return tree

    def note(self, message: str, mark: yaml.Mark | None, path: KeyPath = (), prefix: str = "") -> None:
        where = self.location(mark.line + 1 if mark else 1)
        self.problems.append(Problem(prefix + message, key=dotted(path) or None, where=where))

    def build(self, node: yaml.Node, path: KeyPath) -> Located:
        # An alias is built again at each use: counting here is what stops a bomb of aliases.
        if next(self.built) > MAX_VALUES or len(path) > MAX_DEPTH:
            raise _too_large("aliases that grow too large", node)
        tag = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and tag == "map":
            value: Any = self.mapping(node, path)
        elif isinstance(node, yaml.SequenceNode) and tag == "seq":
            value = [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode) and tag in _SCALARS:
            value = self.scalar(node, tag, path)
        else:
            value = self.note(f"the tag {shorten(node.tag)} means nothing in a recipe", node.start_mark, path)
        return Located(value, self.location(node.start_mark.line + 1))

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Located]:
        lines: dict[str, int] = {}
        result: dict[str, Located] = {}
        for key, value in node.value:
            fault = scalar_fault(key.value) if isinstance(key, yaml.ScalarNode) else "a key must be text"
            if fault is not None:
                self.note(fault, key.start_mark, path)
            elif key.value in lines:
                message = f"duplicate key: here and on line {lines[key.value]}"
                self.note(message, key.start_mark, (*path, key.value))
            else:
                lines[key.value] = key.start_mark.line + 1
                result[key.value] = self.build(value, (*path, key.value))
                result[key.value].where = self.location(lines[key.value])
        return result

    def scalar(self, node: yaml.ScalarNode, tag: str, path: KeyPath) -> Any:
        try:
            value = _SCALARS[tag](node.value)
            fault = scalar_fault(value)
        except (ValueError, KeyError):
            fault = f"{shorten(node.value)!r} cannot be read as {tag}"
        return value if fault is None else self.note(fault, node.start_mark, path)


def dump(recipe: Recipe) -> str:
    """The resolved recipe as YAML that `read_recipe` reads back to the same recipe."""
    # None: lists and mappings that hold no others are written on one line.
    return _dump(recipe.as_dict(), default_flow_style=None, width=110)


def to_yaml_line(value: Any) -> str:
    """A plain value as one line of YAML: what `--set key=` takes to mean just that."""
    text = _dump(value, default_flow_style=True, width=math.inf)
    return text.removesuffix("\n").removesuffix("\n...")


def _dump(value: Any, **style: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **style)


class _Dumper(yaml.SafeDumper):
    """Plain YAML that quotes whatever either of the two YAMLs would take for something other than text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own registry)
        first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, []), *RESOLVERS.get(first, [])]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *RESOLVERS}
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True
