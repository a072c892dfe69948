"""Tables of the registered classes and files: encodings, datasets, ..., recipes, runs."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import json
import textwrap
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.console import table
from zoo.encodings.parameters import HEADS, LAYERS, LENGTH, WIDTH, learned_parameters
from zoo.errors import InputError, nearest, shorten
from zoo.files import read_text, shortest
from zoo.recipe.encoding import encoding_label
from zoo.recipe.reader import LOCAL, SHIPPED, find_recipe, read_recipe, shown
from zoo.recipe.tree import read_file
from zoo.registry import Description
from zoo.runs.card import read_card

RUNS = Path("runs")
SIZE = f"width {WIDTH}, {LAYERS} layers, {HEADS} heads, length {LENGTH}"
LEGEND = (
    f"parameters: learned, at {SIZE}",
    "beyond: longer sequences than in training: published results show that it works (yes),",
    "        it is defined there (no), or an option decides (by policy); `zoo list NAME` shows options",
)

Row = tuple[str, ...]


def listing(what: str, pattern: str | None = None) -> str:
    """The table of one kind as text, of the names that match the pattern (`*`, `?`) if there is one.

    `what` may also be a name or a pattern of any kind. A single name is explained with all its options.

    Raises:
        InputError: no such kind or name, or nothing matches.
    """
    if what in LISTS:
        return LISTS[what](pattern)
    kinds = {kind: kind.names() for kind in registry.KINDS.values()}
    found = [
        f"{kind.kind}s" for kind, names in kinds.items() if pattern is None and fnmatch.filter(names, what)
    ]
    if not found:
        known = LISTS if pattern else [*LISTS, *itertools.chain(*kinds.values())]
        raise InputError(f"no list {what!r}{_hint(what, known)}")
    return "\n\n".join(LISTS[one](what) for one in found)


def _hint(word: str, valid: Iterable[str]) -> str:
    near = nearest(word, valid)
    return f"; did you mean {near!r}?" if near else f"; lists are: {', '.join(LISTS)}"


def _matching(names: Iterable[str], pattern: str | None, what: str) -> list[str]:
    names = list(names)
    found = names if pattern is None else fnmatch.filter(names, pattern)
    if pattern is not None and not found:
        raise InputError(f"no {what} matches {pattern!r}{_hint(pattern, [*names, *LISTS])}")
    return found


def _kind(what: str, pattern: str | None) -> str:
    kind, columns = _COLUMNS[what]
    found = [kind.describe(name) for name in _matching(kind.names(), pattern, kind.kind)]
    if [one.name for one in found] == [pattern]:
        return _page(found[0])
    if not all(one.builtin for one in found):
        columns = {**columns, "from": _origin}
    rows = [(one.name, *(cell(one) for cell in columns.values()), _summary(one)) for one in found]
    notes = [
        f"not counted: {_counted(one)[1]}" for one in found if kind is registry.encodings and _counted(one)[1]
    ]
    legend = ["", *LEGEND] if kind is registry.encodings else []
    shown = table(("name", *columns, "description"), rows)
    return "\n".join([shown, *legend, *(note.strip().split("\n")[0] for note in notes)])


def _page(one: Description) -> str:
    """One class in full, in lines of 80 characters."""
    _, columns = _COLUMNS[f"{one.kind}s"]
    types = {option.name: type_text(option.annotation) for option in one.options}
    facts = {"paper": getattr(one.cls, "paper", "")}
    facts |= {key: cell(one) for key, cell in columns.items() if key != "options"}
    if one.kind == "encoding":
        facts["for"] = facts["for"].replace("both", "decoder, encoder")
        facts["learned parameters"] = f"{facts.pop('parameters')} (at {SIZE})"
        facts["for evaluation of"] = ", ".join(one.replaces)
    facts |= {"from": _origin(one), "source": shortest(one.where)}
    lines = [
        _wrapped(f"{one.name}: {one.summary}"),
        *(_wrapped(f"{k}: {v}", 2) for k, v in facts.items() if v),
    ]
    lines += ["  options:"] * bool(_defaults(one))
    for name, default in _defaults(one).items():
        after = " (may be changed after training)" * (name in getattr(one.cls, "after_training", ()))
        lines.append(_wrapped(f"{name}: {types[name]}{default and f' = {default}'}{after}", 4))
        lines.append(_wrapped(one.help.get(name, ""), 8, 0))
    return "\n".join(filter(None, lines))


def _wrapped(text: str, indent: int = 0, hanging: int = 4) -> str:
    first, rest = " " * indent, " " * (indent + hanging)
    return textwrap.fill(text, 80, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def _summary(one: Description) -> str:
    replaces = getattr(one.cls, "replaces", ())
    return (f"for evaluation of: {', '.join(replaces)}. " if replaces else "") + one.summary


@functools.cache
def _counted(one: Description) -> tuple[str, str]:
    """The learned parameters of an encoding, and why they cannot be counted."""
    try:
        own, wraps = learned_parameters(one.name)
        return " ".join([f"{own:,}"] * (own > 0 or not wraps) + ["+ wrapped"] * wraps), ""
    except InputError as error:
        return "-", str(error)


def _beyond(one: Description) -> str:
    """Whether an encoding works past the trained length."""
    if one.extrapolates == "no" and one.wrapping:
        return "as wrapped"
    return "by policy" if one.extrapolates == "policy" else str(one.extrapolates)


def _origin(one: Description) -> str:
    """The zoo, an installed package, or a file."""
    return "zoo" if one.builtin else one.package or shortest(one.file)


def type_text(annotation: Any) -> str:
    """A type as recipes call it: `number`, `whole number`, `official | geometric`."""
    words = {int: "whole number", float: "number", bool: "true | false", str: "text", type(None): "null"}
    words[dict] = "mapping"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if registry.is_encoding(annotation):
        return "encoding"
    if origin is typing.Annotated:
        return type_text(arguments[0])
    if origin is typing.Literal:
        return " | ".join(map(_value_text, arguments))
    if origin in (list, tuple):
        parts = dict.fromkeys(type_text(part) for part in arguments if part is not ...)
        return f"list of {', '.join(parts)}"
    if arguments and origin is not dict:
        return " | ".join(map(type_text, arguments))
    return words.get(origin or annotation) or getattr(annotation, "__name__", str(annotation)).lower()


def _value_text(value: Any) -> str:
    """A default or a choice as in a recipe; text without quotes."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _defaults(one: Description) -> dict[str, str]:
    """The options with their defaults as in a recipe, "" where they have none; `lr` is left out."""
    options = {option.name: option.default for option in one.options if option.name != "lr"}
    return {k: "" if v is registry.REQUIRED else _value_text(v) for k, v in options.items()}


def _options(one: Description) -> str:
    return ", ".join(f"{k}={v}" if v else k for k, v in _defaults(one).items()) or "-"


def _data(task: Description) -> str:
    return ", ".join(one.name for one in registry.datasets.all().values() if one.gives == task.takes)


_COLUMNS: dict[str, tuple[registry.Registry, dict[str, Callable[[Description], str]]]] = {
    "encodings": (registry.encodings, {
        "family": lambda one: one.family,
        "for": lambda one: "both" if one.decoder and one.encoder else "decoder" if one.decoder else "encoder",
        "parameters": lambda one: _counted(one)[0],
        "beyond": _beyond,
    }),
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


def _recipes(pattern: str | None) -> str:
    folder = LOCAL if LOCAL.is_dir() else SHIPPED
    files = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    # A base recipe can be run by itself, with the encoding from `--set`.
    files |= {f"base/{file.stem}": file for file in sorted(folder.glob("base/*.yaml"))}
    if not files:
        raise InputError(f"{LOCAL}/: no recipes here (*.yaml)")
    header = ("file", "encoding", "model", "data", "length", "steps", "description")
    return table(header, [_recipe(files[name]) for name in _matching(files, pattern, "recipe")])


def _recipe(file: Path) -> Row:
    name = str(shown(file))
    try:
        recipe = read_recipe(file)
    except InputError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        return name, "broken", "", "", "", "", f"{error.problems[0]}{more}"
    label, length = encoding_label(recipe.model.encoding), str(recipe.data.sequence_length)
    steps = str(recipe.trainer.max_steps)
    return name, label, recipe.model.kind, recipe.data.name, length, steps, _first_comment(file)


def _first_comment(file: Path) -> str:
    """The first line of a file's leading comment that is not a command; else that of its base."""
    for line in read_text(file).lstrip().splitlines():
        if not line.startswith("#"):
            break
        comment = line.lstrip("# ").rstrip()
        if comment and not comment.startswith(("python -m zoo", "zoo ")):
            return comment
    base = read_file(file).values.get("base")
    return _first_comment(find_recipe(file.parent / base, base)) if base else ""


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
    **{what: functools.partial(_kind, what) for what in _COLUMNS},
    "recipes": _recipes,
    "runs": _runs,
}
