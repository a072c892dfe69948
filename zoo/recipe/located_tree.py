"""Plain values that know where they come from: a line of a file, or a `--set`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from zoo.errors import Problem, shorten
from zoo.files import control_character

KeyPath = tuple[str | int, ...]

MAX_VALUES = 10_000
MAX_DEPTH = 32
MAX_BITS = 256
"""What a recipe may be in size: its values, aliases counted at each use, how deep they are nested, and the
size of a whole number, beyond which Python itself refuses to write it out."""

# Below these keys text stands for a mapping with that name, so that an option can be set beside it. A recipe
# that chooses another encoding or task does not inherit the options of the base's.
NAMED = (("model", "encoding"), ("task",))


@dataclass
class LocatedTree:
    """Plain values, and for each key path the location (`recipes/x.yaml:8`) it came from.

    `problems` are those of the reading itself, such as a duplicate key; `unread` holds the paths
    whose value could not be read and is null instead.
    """

    values: dict[str, Any] = field(default_factory=dict)
    locations: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unread: set[KeyPath] = field(default_factory=set)

    def where(self, path: KeyPath) -> str | None:
        """The location of a key, or of its nearest parent that has one."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.locations:
                return self.locations[path[:end]]
        return None

    def problem(self, path: KeyPath, message: str, involved: Iterable[KeyPath] = ()) -> Problem:
        """A problem with the value at a key path.

        Its location is that of the key; but if only another key that is involved was set on the command line,
        it is that setting: the file was right without it.
        """
        where = self.where(path)
        if not is_from_command_line(where):
            settings = (self.locations.get(key) or self._location_of_short(key) for key in involved)
            where = next(filter(is_from_command_line, settings), where)
        return Problem(message, key=dotted(path) or None, where=where)

    def _location_of_short(self, path: KeyPath) -> str | None:
        """The location of text that stands for a mapping with that name, by the path of the name."""
        return self.locations.get(path[:-1]) if path[-1:] == ("name",) and path[:-1] in NAMED else None

    def path(self, key: str) -> KeyPath:
        """The key path that dotted text means here: a digit is an index where there is a list."""
        path: KeyPath = ()
        for part in key.split("."):
            path = (*path, int(part) if part.isdigit() and isinstance(self.get(path), list) else part)
        return path

    def get(self, path: KeyPath, default: Any = None) -> Any:
        """The value at a key path, or the default where the path ends early."""
        value: Any = self.values
        for part in path:
            within = isinstance(value, list) and isinstance(part, int) and part < len(value)
            if not within and not (isinstance(value, dict) and part in value):
                return default
            value = value[part]
        return value

    def put(self, path: KeyPath, value: Any, where: str) -> None:
        """Set one key, making the mappings above it; they have the same location.

        Raises:
            ValueError: something above the key is neither a mapping nor a list that long.
        """
        owner: Any = self.values
        here: KeyPath = ()
        for depth, part in enumerate(path):
            if isinstance(owner, list):
                part = _index(part, owner, here)
            elif not isinstance(owner, dict):
                raise ValueError(f"{dotted(here)} is {describe_value(owner)}, with no keys below it")
            here = (*here, part)
            if depth == len(path) - 1:
                owner[part] = value
                break
            below = owner[part] if isinstance(owner, list) else owner.get(part)
            if below is None:
                below = {}
                self.forget([here])
                self.locations[here] = where
            elif isinstance(below, str) and any(path[: len(root)] == root for root in NAMED):
                below = {"name": below}
            owner[part] = owner = below
        self.forget([here])
        self._note(here, value, where)

    def _note(self, path: KeyPath, value: Any, where: str) -> None:
        self.locations[path] = where
        if isinstance(value, dict | list):
            for part, inner in value.items() if isinstance(value, dict) else enumerate(value):
                self._note((*path, part), inner, where)

    def forget(self, paths: Iterable[KeyPath]) -> None:
        """Drop what is known of everything at and below some keys: its location, and that it was not read."""
        gone = set(paths)

        def stays(key: KeyPath) -> bool:
            return not any(key[:end] in gone for end in range(len(key) + 1))

        self.locations = {key: where for key, where in self.locations.items() if stays(key)}
        self.unread = set(filter(stays, self.unread))

    def merged_over(self, base: LocatedTree) -> LocatedTree:
        """This tree laid over another: mappings merge key by key, everything else replaces."""
        merged = LocatedTree(
            locations=dict(base.locations), problems=[*base.problems, *self.problems], unread=set(base.unread)
        )
        replaced: list[KeyPath] = []
        merged.values = _merge(base.values, self.values, (), replaced)
        merged.forget(replaced)
        merged.locations.update(self.locations)
        merged.unread |= self.unread
        return merged


def _merge(
    below: dict[str, Any], above: dict[str, Any], path: KeyPath, replaced: list[KeyPath]
) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        here = (*path, key)
        old = result.get(key)
        if isinstance(old, dict) and value is None and here not in NAMED:
            continue  # `model:` with nothing under it changes nothing
        if isinstance(old, dict) and isinstance(value, dict) and here not in NAMED:
            result[key] = _merge(old, value, here, replaced)
        else:
            replaced.append(here)
            result[key] = value
    return result


def _index(part: str | int, owner: list[Any], here: KeyPath) -> int:
    text = str(part)
    if not text.isdigit() or int(text) >= len(owner):
        raise ValueError(f"{dotted(here)} is a list of {len(owner)}; {text!r} is no index into it (from 0)")
    return int(text)


def scalar_fault(value: object) -> str | None:
    """Why a plain value by itself can be nothing in a recipe; None where it can."""
    if isinstance(value, str):
        character = control_character(value)
        return None if character is None else f"holds a control character ({character})"
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return f"a whole number of {value.bit_length()} bits; no key takes one so large"
    return None


def plain_data_faults(values: object) -> list[tuple[KeyPath, str]]:
    """What values hold that plain data of a recipe cannot, by key path; of those without end, that alone."""
    faults: list[tuple[KeyPath, str]] = []
    level: list[tuple[KeyPath, Any]] = [((), values)]
    count = 0
    # Twice: what a file holds may have been set below what it holds.
    for _ in range(2 * MAX_DEPTH):
        below: list[tuple[KeyPath, Any]] = []
        for path, value in level:
            if isinstance(value, dict):
                below += [((*path, key), inner) for key, inner in value.items()]
                faults += [(path, _fault_of_key(key)) for key in value if _fault_of_key(key)]
            elif isinstance(value, list | tuple):
                below += [((*path, index), inner) for index, inner in enumerate(value)]
            elif value is not None and not isinstance(value, str | int | float):
                faults.append((path, f"must be plain data, got a {type(value).__name__}"))
            elif scalar_fault(value) is not None:
                faults.append((path, scalar_fault(value)))
        if not below:
            return faults
        count += len(below)
        if count > MAX_VALUES:
            return [((), "too many values: this is no recipe")]
        level = below
    return [((), "nested too deeply: this is no recipe")]


def _fault_of_key(key: object) -> str | None:
    return scalar_fault(key) if isinstance(key, str) else f"a key must be text, got {describe_value(key)}"


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
