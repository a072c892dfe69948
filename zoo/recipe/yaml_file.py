"""YAML of recipes: read with the line of every key, and written so that it is read back to the same values.

Scalars are those of YAML 1.2 (`6e-4` is a number, `on` is text). Duplicate keys and tags are errors.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from zoo.errors import InputError, Problem, shorten
from zoo.files import read_text
from zoo.recipe.located_tree import KeyPath, Located, describe_value, dotted

if TYPE_CHECKING:
    from zoo.recipe.schema import Recipe

MAX_BYTES = 256 << 10


def read_file(path: str | Path) -> Located:
    """The tree of a YAML file.

    Raises:
        InputError: the file cannot be read as one mapping; lists every duplicate key and unreadable value.
    """
    shown = os.path.normpath(path)
    tree = _Reader(lambda line: f"{shown}:{line}").read(read_text(Path(shown), MAX_BYTES))
    if not isinstance(tree.value, dict):
        what = "the file is empty" if tree.value is None else f"this is {describe_value(tree.plain())}"
        raise InputError(Problem(f"{what}; a recipe is a mapping of keys", where=f"{shown}:1"))
    return tree


def read_value(text: str, where: str) -> Any:
    """The value of a piece of YAML, by the rules of a recipe; empty text is null."""
    return _Reader(lambda line: where).read(text).plain()


class _Loader(yaml.SafeLoader):
    """Composes nodes with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list] = {}  # noqa: RUF012  (PyYAML's own registry, filled below)


_TAG = "tag:yaml.org,2002:"
_FLOAT = (
    r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


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


class _Reader:
    """Turns YAML into a tree; `location` gives the location of a line, counted from 1."""

    def __init__(self, location: Callable[[int], str]):
        self.location = location
        self.problems: list[Problem] = []

    def read(self, text: str) -> Located:
        try:
            node = yaml.compose(text, _Loader)
            tree = Located(None, self.location(1)) if node is None else self.build(node, ())
        except RecursionError as error:  # an alias that holds itself
            raise InputError(Problem("nested too deeply", where=self.location(1))) from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            line = mark.line if mark else text[: getattr(error, "position", 0)].count("\n")
            reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
            where = self.location(line + 1)
            raise InputError(Problem(f"not YAML: {shorten(reason, 200)}", where=where)) from error
        if self.problems:
            raise InputError(self.problems)
        return tree

    def note(self, message: str, node: yaml.Node, path: KeyPath) -> None:
        where = self.location(node.start_mark.line + 1)
        self.problems.append(Problem(message, key=dotted(path) or None, where=where))

    def build(self, node: yaml.Node, path: KeyPath) -> Located:
        tag, value = node.tag.removeprefix(_TAG), None
        if isinstance(node, yaml.MappingNode) and tag == "map":
            value = self.mapping(node, path)
        elif isinstance(node, yaml.SequenceNode) and tag == "seq":
            value = [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode) and tag in _SCALARS:
            try:
                value = _SCALARS[tag](node.value)
            except (ValueError, KeyError):
                self.note(f"{shorten(node.value)!r} cannot be read as {tag}", node, path)
        else:
            self.note(f"unknown tag {shorten(node.tag)}", node, path)
        return Located(value, self.location(node.start_mark.line + 1))

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Located]:
        lines: dict[str, int] = {}
        result: dict[str, Located] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.note("a key must be text", key, path)
            elif key.value in lines:
                message = f"duplicate key: here and on line {lines[key.value]}"
                self.note(message, key, (*path, key.value))
            else:
                lines[key.value] = key.start_mark.line + 1
                result[key.value] = self.build(value, (*path, key.value))
                result[key.value].where = self.location(lines[key.value])
        return result


def dump(recipe: Recipe) -> str:
    """The resolved recipe as YAML that `read_recipe` reads back to the same recipe."""
    # None: lists and mappings that hold no others are written on one line.
    return _dump(recipe.as_dict(), default_flow_style=None, width=110)


def to_yaml_line(value: Any) -> str:
    """A plain value as one line of YAML, as `--set key=` takes it."""
    text = _dump(value, default_flow_style=True, width=math.inf)
    return text.removesuffix("\n").removesuffix("\n...")


def _dump(value: Any, **style: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **style)


class _Dumper(yaml.SafeDumper):
    """Plain YAML that quotes text which YAML 1.1 or 1.2 would read as something else."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own registry)
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *_Loader.yaml_implicit_resolvers.get(first, []),
        ]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True
