"""YAML as plain values that remember the line they came from.

PyYAML alone reads `6e-4` as text and `on` as true, lets a duplicated key win in silence, and forgets where a
value stood. Here scalars are those of YAML 1.2, duplicates are problems, and every key path knows its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from zoo.errors import InputError, Problem

Path_ = tuple[str | int, ...]

MAX_BYTES = 1 << 20
MAX_NODES = 20_000
MAX_DEPTH = 32
# Below these keys text stands for a mapping with that name, so that an option can be set beside it.
NAMED = (("model", "encoding"), ("task",))
# A recipe that chooses another encoding must not inherit the options of the base's.
REPLACED = (("model", "encoding"), ("task",))


@dataclass
class Tree:
    """Plain values, and for each key path the place (`recipes/x.yaml:8`) it came from."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Path_, str] = field(default_factory=dict)

    def where(self, path: Path_) -> str | None:
        """The place of a key, or of its nearest parent that has one."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return None

    def problem(self, path: Path_, message: str) -> Problem:
        """A problem with the value at a key path."""
        return Problem(message, key=dotted(path) or None, where=self.where(path))

    def get(self, path: Path_, default: Any = None) -> Any:
        """The value at a key path, or the default where the path ends early."""
        value: Any = self.values
        for part in path:
            within = isinstance(value, list) and isinstance(part, int) and part < len(value)
            if not within and not (isinstance(value, dict) and part in value):
                return default
            value = value[part]
        return value

    def put(self, path: Path_, value: Any, where: str) -> None:
        """Set one key, making the mappings above it.

        Raises:
            ValueError: something above the key is neither a mapping nor a list that long.
        """
        owner: Any = self.values
        for depth, part in enumerate(path):
            here = path[:depth]
            if isinstance(owner, list):
                part = _index(part, owner, here)
            elif not isinstance(owner, dict):
                raise ValueError(f"{dotted(here)} is {spoken(owner)}, with no keys below it")
            if depth == len(path) - 1:
                owner[part] = value
                break
            below = owner[part] if isinstance(owner, list) else owner.get(part)
            if below is None:
                below = {}
            elif isinstance(below, str) and any(path[: len(root)] == root for root in NAMED):
                below = {"name": below}
            owner[part] = owner = below
        path = tuple(int(p) if isinstance(p, str) and p.isdigit() else p for p in path)
        self.forget(path)
        self.places[path] = where

    def forget(self, path: Path_) -> None:
        """Drop the places of everything at and below a key."""
        self.places = {key: place for key, place in self.places.items() if key[: len(path)] != path}

    def merged_over(self, base: Tree) -> Tree:
        """This tree laid over another: mappings merge key by key, everything else replaces."""
        merged = Tree(places=dict(base.places))
        merged.values = _merge(base.values, self.values, (), merged)
        merged.places.update(self.places)
        return merged


def _merge(below: dict[str, Any], above: dict[str, Any], path: Path_, merged: Tree) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        here = (*path, key)
        old = result.get(key)
        if isinstance(old, dict) and value is None and here not in REPLACED:
            continue  # `model:` with nothing under it says nothing
        if isinstance(old, dict) and isinstance(value, dict) and here not in REPLACED:
            result[key] = _merge(old, value, here, merged)
        else:
            merged.forget(here)
            result[key] = value
    return result


def _index(part: str | int, owner: list[Any], here: Path_) -> int:
    text = str(part)
    if not text.isdigit() or int(text) >= len(owner):
        raise ValueError(f"{dotted(here)} is a list of {len(owner)}; {text!r} is no index into it (from 0)")
    return int(text)


def dotted(path: Iterable[str | int]) -> str:
    """A key path as the user writes it: `model.encoding.0.name`."""
    return ".".join(map(str, path))


def spoken(value: object) -> str:
    """A value as a message shows it: text is called text, so that '64' is not taken for 64."""
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


def shorten(text: str, limit: int = 60) -> str:
    """Text cut to a length that fits a message."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def read_file(path: str | Path) -> Tree:
    """The tree of a YAML file, and InputError for a file that cannot be read as one mapping."""
    shown = os.path.normpath(path)
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror or error}", where=shown)) from error
    if len(raw) > MAX_BYTES:
        raise InputError(Problem(f"larger than {MAX_BYTES >> 20} MiB: this is no recipe", where=shown))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(Problem("is not UTF-8 text", where=f"{shown}:{line}")) from error
    tree = Tree(places={(): f"{shown}:1"})
    builder = _Builder(tree, lambda line: f"{shown}:{line}")
    values = builder.parse(text)
    if values is None and not builder.problems:
        raise InputError(Problem("the file is empty; a recipe is a mapping of keys", where=f"{shown}:1"))
    if not builder.problems and not isinstance(values, dict):
        raise InputError(
            Problem(f"a recipe is a mapping of keys, this is {spoken(values)}", where=f"{shown}:1")
        )
    if builder.problems:
        raise InputError(builder.problems)
    tree.values = values
    return tree


def read_value(text: str, where: str) -> Any:
    """The value that a piece of YAML means, read by the rules of a recipe; nothing is null."""
    builder = _Builder(Tree(), lambda line: where)
    value = builder.parse(text)
    if builder.problems:
        raise InputError(builder.problems)
    return value


class _Loader(yaml.SafeLoader):
    """Composes nodes, within bounds, with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list] = {}  # noqa: RUF012  (PyYAML's own registry, filled below)
    nodes = 0
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node:
        self.nodes += 1
        if self.nodes > MAX_NODES or self.depth >= MAX_DEPTH:
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
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)

RESOLVERS: dict[str, list] = _Loader.yaml_implicit_resolvers


class _Builder:
    """Turns nodes into plain values, notes each key's place, and gathers what is wrong."""

    def __init__(self, tree: Tree, place: Any):
        self.tree = tree
        self.place = place
        self.problems: list[Problem] = []
        self.built = 0

    def parse(self, text: str) -> Any:
        try:
            loader = _Loader(text)
            try:
                node = loader.get_single_node()
            finally:
                loader.dispose()
            return None if node is None else self.build(node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            context = f" ({error.context})" if error.context and not error.problem else ""
            self.problems.append(
                Problem(f"not YAML: {error.problem or error.context}{context}", where=self.place(line))
            )
        except yaml.YAMLError as error:
            line = text[: getattr(error, "position", 0)].count("\n") + 1
            reason = getattr(error, "reason", None) or str(error)
            self.problems.append(Problem(f"not YAML: {reason}", where=self.place(line)))
        return None

    def build(self, node: yaml.Node, path: Path_) -> Any:
        # An alias is built again at each use: counting here is what stops a bomb of aliases.
        self.built += 1
        if self.built > MAX_NODES or len(path) > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem="aliases that grow too large: this is no recipe", problem_mark=node.start_mark
            )
        self.tree.places.setdefault(path, self.place(node.start_mark.line + 1))
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        return self.scalar(node, path)

    def mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        lines: dict[str, int] = {}
        result: dict[str, Any] = {}
        for key, value in self.pairs(node, path):
            line = key.start_mark.line + 1
            here = (*path, key.value)
            if key.value in lines:
                message = f"this key stands twice: here and on line {lines[key.value]}"
                self.problems.append(Problem(message, key=dotted(here), where=self.place(line)))
                continue
            lines[key.value] = line
            self.tree.places[here] = self.place(line)
            result[key.value] = self.build(value, here)
        return result

    def pairs(self, node: yaml.MappingNode, path: Path_) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key, value
            else:
                where = self.place(key.start_mark.line + 1)
                self.problems.append(Problem("a key must be text", key=dotted(path) or None, where=where))

    def scalar(self, node: yaml.ScalarNode, path: Path_) -> Any:
        text = node.value
        try:
            match node.tag.removeprefix("tag:yaml.org,2002:"):
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    plain = text.replace("_", "")
                    return int(plain, 0) if plain[:2] in ("0o", "0x") else int(plain)
                case "float":
                    return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
                case "str":
                    return text
            message = f"the tag {node.tag} means nothing in a recipe"
        except (ValueError, KeyError):
            message = f"{shorten(text)!r} cannot be read as {node.tag.rpartition(':')[2]}"
        where = self.place(node.start_mark.line + 1)
        self.problems.append(Problem(message, key=dotted(path) or None, where=where))
        return None
