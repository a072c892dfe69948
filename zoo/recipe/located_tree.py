"""Plain values with their locations: a line of a file, or a `--set`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from zoo.errors import InputError, Problem, shorten

KeyPath = tuple[str | int, ...]

NAMED = (("model", "encoding"), ("task",))
"""Below these keys text stands for a mapping with that name, so that an option can be set as well. A recipe
that chooses another encoding or task does not inherit the options of the base's."""


@dataclass
class Located:
    """A scalar, or a mapping or list of `Located`; and the location of its key (`recipes/x.yaml:8`)."""

    value: Any
    where: str | None = None

    def plain(self) -> Any:
        """The values without their locations."""
        match self.value:
            case dict():
                return {key: inner.plain() for key, inner in self.value.items()}
            case list():
                return [inner.plain() for inner in self.value]
        return self.value

    def find(self, path: KeyPath) -> Iterator[Located]:
        """The nodes along a path, from this one down, until the path or the tree ends."""
        node = self
        yield node
        for part in path:
            within = isinstance(node.value, list) and isinstance(part, int) and part < len(node.value)
            if not within and not (isinstance(node.value, dict) and part in node.value):
                return
            node = node.value[part]
            yield node

    def location(self, path: KeyPath) -> str | None:
        """The location of a key, or of its nearest parent that is there."""
        *_, nearest = self.find(path)
        return nearest.where

    def problem(self, path: KeyPath, message: str, involved: Iterable[KeyPath] = ()) -> Problem:
        """A problem with the value at a key path.

        Its location is that of the key; but if only another key that is involved was set on the command line,
        it is that setting: the file was right without it.
        """
        where = self.location(path)
        if not is_from_command_line(where):
            where = next(filter(is_from_command_line, map(self.location, involved)), where)
        return Problem(message, key=dotted(path) or None, where=where)

    def put(self, path: KeyPath, new: Located) -> None:
        """Set one key, making the mappings above it; they have the same location.

        Raises:
            InputError: a node above the key is neither a mapping nor a list that long.
        """
        node = self
        for depth, part in enumerate(path):
            above = path[:depth]
            if node.value is None:
                node.value, node.where = {}, new.where
            elif isinstance(node.value, str) and any(above[: len(root)] == root for root in NAMED):
                node.value = {"name": Located(node.value, node.where)}
            if isinstance(node.value, list):
                text = str(part)
                if not text.isdecimal() or int(text) >= len(node.value):
                    message = f"{dotted(above)} is a list of {len(node.value)}; no index {text!r}"
                    raise InputError(Problem(message, key=dotted(path), where=new.where))
                part = int(text)
            elif not isinstance(node.value, dict):
                message = f"{dotted(above)} is {describe_value(node.value)}, with no keys below it"
                raise InputError(Problem(message, key=dotted(path), where=new.where))
            elif part not in node.value:
                node.value[part] = Located(None, new.where)
            node = node.value[part]
        node.value, node.where = new.value, new.where

    def merged_over(self, base: Located, path: KeyPath = ()) -> Located:
        """This tree laid over another: mappings merge key by key, everything else replaces."""
        if not isinstance(base.value, dict) or path in NAMED:
            return self
        if self.value is None:
            return base  # `model:` with nothing under it changes nothing
        if not isinstance(self.value, dict):
            return self
        merged = dict(base.value)
        for key, above in self.value.items():
            merged[key] = above.merged_over(merged[key], (*path, key)) if key in merged else above
        return Located(merged, self.where)


def located(values: Any, where: str | None = None) -> Located:
    """Plain data of any origin as a tree whose values all have one location."""
    if isinstance(values, dict):
        return Located({key: located(inner, where) for key, inner in values.items()}, where)
    if isinstance(values, list | tuple):
        return Located([located(inner, where) for inner in values], where)
    return Located(values, where)


def is_from_command_line(where: str | None) -> bool:
    """Whether a location is a `--set` of the command line."""
    return where is not None and where.startswith("--set ")


def dotted(path: Iterable[str | int]) -> str:
    """A key path as the user writes it: `model.encoding.0.name`."""
    return ".".join(map(str, path))


def describe_value(value: object) -> str:
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
