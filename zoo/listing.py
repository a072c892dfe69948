"""Tables of the registered classes and files: encodings, datasets, ..., recipes, runs."""

from __future__ import annotations

import functools
import json
import os
import typing
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.console import table
from zoo.encodings.parameters import HEADS, LAYERS, LENGTH, WIDTH, learned_parameters
from zoo.errors import InputError, nearest, shorten
from zoo.files import read_text
from zoo.recipe.encoding import encoding_label
from zoo.recipe.reader import read_recipe
from zoo.recipe.tree import MAX_BYTES, read_file
from zoo.registry import Description
from zoo.runs.card import read_card

RECIPES, RUNS = Path("recipes"), Path("runs")
SIZE = f"width {WIDTH}, {LAYERS} layers, {HEADS} heads, length {LENGTH}"

Row = tuple[str, ...]


def listing(what: str, pattern: str | None = None) -> str:
    """The table of one kind as text, of the names that match the pattern (`*`, `?`) if there is one.

    Raises:
        InputError: no such kind, or nothing matches.
    """
    if what not in LISTS:
        raise InputError(f"no list {what!r}{_hint(what, LISTS)}")
    return LISTS[what](pattern)


def _hint(word: str, valid: Iterable[str]) -> str:
    near = nearest(word, valid)
    return f"; did you mean {near!r}?" if near else f"; lists are: {', '.join(LISTS)}"


def _matching(names: Iterable[str], pattern: str | None, what: str) -> list[str]:
    names = list(names)
    found = names if pattern is None else [name for name in names if fnmatchcase(name, pattern)]
    if pattern is not None and not found:
        raise InputError(f"no {what} matches {pattern!r}{_hint(pattern, [*names, *LISTS])}")
    return found


def _described(kind: registry.Registry, pattern: str | None) -> list[Description]:
    names = kind.names()
    if pattern in kind.broken and pattern not in names:
        raise InputError(kind.unknown(pattern))
    return [kind.describe(name) for name in _matching(names, pattern, kind.kind)]


def _encodings(pattern: str | None) -> str:
    found = _described(registry.encodings, pattern)
    if [one.name for one in found] == [pattern]:
        return _one_encoding(found[0])
    notes, rows = _broken(registry.encodings) if pattern is None else [], []
    for one in found:
        try:
            count = str(learned_parameters(one.name))
        except InputError as error:
            count = "-"
            notes.append(f"not counted: {error}")
        kinds = "both" if one.decoder and one.encoder else "".join(_kinds(one))
        role = f"for evaluation of: {', '.join(one.replaces)}. " if one.replaces else ""
        origin = _origin(one) if one.builtin or one.package else one.file.name
        rows.append((one.name, one.family, kinds, count, _beyond(one), origin, role + one.summary))
    return "\n".join([
        table(("name", "family", "for", "parameters", "beyond", "from", "description"), rows),
        "",
        f"parameters: learned, at {SIZE}",
        "beyond: longer sequences than in training: published results show that it works (yes),",
        "        it is defined there (no), or an option decides (by policy); `zoo list NAME` shows options",
        *(note.strip().split("\n")[0] for note in notes),
    ])  # fmt: skip


def _one_encoding(one: Description) -> str:
    facts = {
        "paper": one.paper,
        "family": one.family,
        "for": ", ".join(_kinds(one)),
        "for evaluation of": ", ".join(one.replaces),
        "learned parameters": f"{learned_parameters(one.name)} (at {SIZE})",
        "beyond training": _beyond(one),
        "from": _origin(one),
        "source": _near(one.where),
    }
    lines = [f"{one.name}: {one.summary}", *(f"  {key}: {value}" for key, value in facts.items() if value)]
    lines += ["  options:"] if one.options else []
    for option in one.options:
        default = "" if option.default is registry.REQUIRED else f" = {_value_text(option.default)}"
        after = " (may be changed after training)" if option.name in one.after_training else ""
        lines.append(f"    {option.name}: {_type_text(option.annotation)}{default}{after}")
    return "\n".join(lines)


def _beyond(one: Description) -> str:
    """Whether an encoding works past the trained length."""
    if one.extrapolates == "no" and any(registry.holds_wrapped(o.annotation) for o in one.options):
        return "as wrapped"
    return "by policy" if one.extrapolates == "policy" else str(one.extrapolates)


def _kinds(one: Description) -> list[str]:
    return [kind for kind in ("decoder", "encoder") if getattr(one, kind)]


def _origin(one: Description) -> str:
    """The zoo, an installed package, or a file."""
    return "zoo" if one.builtin else one.package or _near(str(one.file))


def _near(where: str) -> str:
    """A path relative to the working directory, where that is shorter."""
    return min(os.path.relpath(where), where, key=len)


def _type_text(annotation: Any) -> str:
    """A type as recipes call it: `number`, `whole number`, `official | geometric`."""
    words = {int: "whole number", float: "number", bool: "true | false", str: "text", type(None): "null"}
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if registry.is_encoding(annotation):
        return "encoding"
    if origin is typing.Annotated:
        return _type_text(arguments[0])
    if origin is typing.Literal:
        return " | ".join(map(_value_text, arguments))
    if origin in (list, tuple):
        return f"list of {', '.join(_type_text(part) for part in arguments if part is not ...)}"
    if arguments and origin is not dict:
        return " | ".join(map(_type_text, arguments))
    return words.get(annotation) or getattr(annotation, "__name__", str(annotation)).lower()


def _value_text(value: Any) -> str:
    """A default or a choice as in a recipe; text without quotes."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _options(one: Description) -> str:
    options = (
        option.name + ("" if option.default is registry.REQUIRED else f"={_value_text(option.default)}")
        for option in one.options
        if option.name != "lr"
    )
    return ", ".join(options) or "-"


def _data(task: Description) -> str:
    return ", ".join(one.name for one in _described(registry.datasets, None) if one.gives == task.takes)


_COLUMNS: dict[str, tuple[registry.Registry, dict[str, Callable[[Description], str]]]] = {
    "datasets": (registry.datasets, {"gives": lambda one: one.gives, "where from": lambda one: one.source}),
    "tasks": (registry.tasks, {
        "for": lambda one: ", ".join(one.kinds),
        "data": _data,
        "protocols": lambda one: ", ".join(one.protocols),
    }),
    "protocols": (registry.protocols, {
        "needs": lambda one: one.needs,
        "axis": lambda one: one.axis,
        "intervals over": lambda one: one.unit,
        "better": lambda one: "higher" if one.higher_is_better else "lower",
    }),
    "optimizers": (registry.optimizers, {"options": _options}),
    "schedules": (registry.schedules, {"options": _options}),
}  # fmt: skip
"""The columns of each kind."""


def _kind(what: str, pattern: str | None) -> str:
    kind, columns = _COLUMNS[what]
    rows = [
        (one.name, *(cell(one) for cell in columns.values()), _origin(one), one.summary)
        for one in _described(kind, pattern)
    ]
    return "\n".join([table(("name", *columns, "from", "description"), rows), *_broken(kind)])


def _broken(kind: registry.Registry) -> list[str]:
    return [f"cannot be used: {name}: {reason}" for name, reason in kind.broken.items()]


def _recipes(pattern: str | None) -> str:
    # Without such a folder here: that of a checkout, next to the package.
    folder = RECIPES if RECIPES.is_dir() else Path(__file__).parent.parent / RECIPES
    files = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    # A base recipe can be run by itself, with the encoding from `--set`.
    files |= {f"base/{file.stem}": file for file in sorted(folder.glob("base/*.yaml"))}
    if not files:
        raise InputError(f"{RECIPES}/: no recipes here (*.yaml)")
    header = ("file", "encoding", "model", "data", "length", "steps", "description")
    return table(header, [_recipe(files[name]) for name in _matching(files, pattern, "recipe")])


def _recipe(file: Path) -> Row:
    shown = _near(str(file))
    try:
        recipe = read_recipe(file)
    except InputError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        return shown, "broken", "", "", "", "", f"{error.problems[0]}{more}"
    label, length = encoding_label(recipe.model.encoding), str(recipe.data.sequence_length)
    steps = str(recipe.trainer.max_steps)
    return shown, label, recipe.model.kind, recipe.data.name, length, steps, _first_comment(file)


def _first_comment(file: Path) -> str:
    """The first line of a file's leading comment that is not a command; else that of its base."""
    for line in read_text(file, MAX_BYTES).lstrip().splitlines():
        if not line.startswith("#"):
            break
        comment = line.lstrip("# ").rstrip()
        if comment and not comment.startswith(("python -m zoo", "zoo ")):
            return comment
    base = read_file(file).values.get("base")
    return _first_comment(file.parent / base) if base else ""


def _runs(pattern: str | None) -> str:
    cards = {file.parent.name: file.parent for file in sorted(RUNS.glob("*/card.json"))}
    if not cards:
        raise InputError(f"{RUNS}/: no runs here; `zoo fit --recipe FILE` makes one")
    header = ("run", "encoding", "task", "data", "length", "seed", "steps", "finished")
    return table(header, [_run(cards[name]) for name in _matching(cards, pattern, "run")])


def _run(folder: Path) -> Row:
    try:
        card = read_card(folder)
    except InputError as error:
        return str(folder), "; ".join(problem.message for problem in error.problems), *[""] * 6
    words = {None: "-", True: "yes", False: "no"}
    keys = ("encoding", "task", "data", "train_length", "seed", "steps")
    values = [shorten(str(card.get(key, "-"))) for key in keys]
    return str(folder), *values, words[card.get("finished")]


LISTS: dict[str, Callable[[str | None], str]] = {
    "encodings": _encodings,
    **{what: functools.partial(_kind, what) for what in _COLUMNS},
    "recipes": _recipes,
    "runs": _runs,
}
