"""Reading YAML into a tree, and writing a recipe as YAML that is read back to the same.

PyYAML alone reads `6e-4` as text and `on` as true, lets a duplicated key win in silence, and forgets where a
value stood. Here scalars are those of YAML 1.2, duplicates are problems, and every key path has a location.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from zoo.errors import InputError, Problem
from zoo.files import read_text
from zoo.recipe.located_tree import (
    MAX_DEPTH,
    MAX_VALUES,
    KeyPath,
    LocatedTree,
    describe_value,
    dotted,
    scalar_fault,
    shorten,
)
from zoo.recipe.yaml_errors import explain_yaml_error

if TYPE_CHECKING:
    from zoo.recipe.schema import Recipe

MAX_BYTES = 256 << 10


def read_file(path: str | Path) -> LocatedTree:
    """The tree of a YAML file, with the problems of its keys and scalars.

    Raises:
        InputError: the file cannot be read as one mapping.
    """
    shown = os.path.normpath(path)
    text = read_text(Path(shown), MAX_BYTES)
    tree = LocatedTree(locations={(): f"{shown}:1"})
    values = _Builder(tree, lambda line: f"{shown}:{line}").parse(text)
    if not isinstance(values, dict):
        message = f"a recipe is a mapping of keys, this is {describe_value(values)}"
        if values is None:
            message = "the file is empty; a recipe is a mapping of keys"
        raise InputError(tree.problems or Problem(message, where=f"{shown}:1"))
    tree.values = values
    return tree


def read_value(text: str, where: str) -> Any:
    """The value that a piece of YAML means, read by the rules of a recipe; nothing is null."""
    tree = LocatedTree()
    value = _Builder(tree, lambda line: where).parse(text)
    if tree.problems:
        raise InputError(tree.problems)
    return value


class _Loader(yaml.SafeLoader):
    """Composes nodes, within bounds, with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list] = {}  # noqa: RUF012  (PyYAML's own registry, filled below)
    nodes = 0
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node:
        self.nodes += 1
        if self.nodes > MAX_VALUES or self.depth >= MAX_DEPTH:
            mark = self.peek_event().start_mark
            what = "nested too deeply" if self.depth >= MAX_DEPTH else "too many values"
            raise yaml.MarkedYAMLError(problem=f"{what}: this is no recipe", problem_mark=mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


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


class _Builder:
    """Turns nodes into plain values, notes each key's location, and collects problems in the tree."""

    def __init__(self, tree: LocatedTree, location: Any):
        self.tree = tree
        self.location = location
        self.built = 0

    def parse(self, text: str) -> Any:
        """The value of a text; InputError where it is no YAML at all, and nothing after it can be known."""
        try:
            loader = _Loader(text)
            try:
                node = loader.get_single_node()
            finally:
                loader.dispose()
            return None if node is None else self.build(node, ())
        except yaml.MarkedYAMLError as error:
            fault, line = explain_yaml_error(error, text)
            problem = Problem(f"not YAML: {fault}", where=self.location(line))
            raise InputError([*self.tree.problems, problem]) from error
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            # Of numbers in a directive or an escape PyYAML takes any, and fails on some.
            line = text[: getattr(error, "position", 0)].count("\n") + 1
            reason = getattr(error, "reason", None) or str(error)
            raise InputError(
                Problem(f"not YAML: {shorten(reason, 200)}", where=self.location(line))
            ) from error

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        # An alias is built again at each use: counting here is what stops a bomb of aliases.
        self.built += 1
        if self.built > MAX_VALUES or len(path) > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem="aliases that grow too large: this is no recipe", problem_mark=node.start_mark
            )
        self.tree.locations.setdefault(path, self.location(node.start_mark.line + 1))
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        if node.tag != f"{_TAG}{'map' if isinstance(node, yaml.MappingNode) else 'seq'}":
            return self.unreadable(node, path, _meaningless(node.tag))
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        lines: dict[str, int] = {}
        result: dict[str, Any] = {}
        for key, value in self.pairs(node, path):
            line = key.start_mark.line + 1
            here = (*path, key.value)
            if key.value in lines:
                message = f"duplicate key: here and on line {lines[key.value]}"
                self.tree.problems.append(Problem(message, key=dotted(here), where=self.location(line)))
                continue
            lines[key.value] = line
            self.tree.locations[here] = self.location(line)
            result[key.value] = self.build(value, here)
        return result

    def pairs(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        for key, value in node.value:
            fault = "a key must be text"
            if isinstance(key, yaml.ScalarNode):
                fault = scalar_fault(key.value)
            if fault is None:
                yield key, value
            else:
                where = self.location(key.start_mark.line + 1)
                self.tree.problems.append(Problem(fault, key=dotted(path) or None, where=where))

    def scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        text = node.value
        try:
            match node.tag.removeprefix(_TAG):
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    plain = text.replace("_", "")
                    value = int(plain, 0) if plain[:2] in ("0o", "0x") else int(plain)
                    return self.checked(node, path, value)
                case "float":
                    return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
                case "str":
                    return self.checked(node, path, text)
            message = _meaningless(node.tag)
        except (ValueError, KeyError):
            message = f"{shorten(text)!r} cannot be read as {node.tag.rpartition(':')[2]}"
        return self.unreadable(node, path, message)

    def checked(self, node: yaml.Node, path: KeyPath, value: Any) -> Any:
        fault = scalar_fault(value)
        return value if fault is None else self.unreadable(node, path, fault)

    def unreadable(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        """Note a value that could not be read; it is null instead."""
        where = self.location(node.start_mark.line + 1)
        self.tree.problems.append(Problem(message, key=dotted(path) or None, where=where))
        self.tree.unread.add(path)


def _meaningless(tag: str) -> str:
    return f"the tag {shorten(tag)} means nothing in a recipe"


def dump(recipe: Recipe) -> str:
    """The resolved recipe as YAML that `read_recipe` reads back to the same recipe."""
    return yaml.dump(recipe.as_dict(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def to_yaml_line(value: Any) -> str:
    """A plain value as one line of YAML: what `--set key=` takes to mean just that."""
    text = yaml.dump(
        value,
        Dumper=_LineDumper,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=math.inf,
    )
    return text.removesuffix("\n").removesuffix("\n...")


class _Dumper(yaml.SafeDumper):
    """Plain YAML that quotes whatever either of the two YAMLs would take for something other than text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own registry)
        first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, []), *RESOLVERS.get(first, [])]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *RESOLVERS}
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _list(dumper: _Dumper, data: list[Any]) -> yaml.Node:
    flow = not any(isinstance(item, dict | list) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)


_Dumper.add_representer(list, _list)


class _LineDumper(_Dumper):
    """All on one line."""


_LineDumper.add_representer(list, yaml.SafeDumper.represent_list)
