"""Tables of the registered classes and files: encodings, recipes, datasets, tasks, runs.

Nothing heavy is imported for them, but for torch where the parameters of a plugin's encodings are counted.
"""

from __future__ import annotations

import functools
import os
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
from zoo.recipe.yaml_file import MAX_BYTES, read_file
from zoo.registry import annotation_text, value_text
from zoo.runs.card import read_card

RECIPES, RUNS = Path("recipes"), Path("runs")

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
    if pattern is None:
        return names
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise InputError(f"no {what} matches {pattern!r}{_hint(pattern, [*names, *LISTS])}")
    return found


def _encodings(pattern: str | None) -> str:
    found = _described(registry.encodings, pattern)
    if pattern is not None and [one.name for one in found] == [pattern]:
        return _one_encoding(found[0])
    notes = [
        f"cannot be used: {name}: {why}" for name, why in registry.encodings.broken.items() if pattern is None
    ]
    rows = []
    for one in found:
        count, note = _count(one)
        notes += [note] if note else []
        kinds = "both" if one.decoder and one.encoder else "".join(kinds_of(one))
        rows.append((one.name, str(one.family), kinds, count, beyond(one), _short_origin(one), _role(one)))
    return "\n".join([
        table(("name", "family", "for", "parameters", "beyond", "from", "description"), rows),
        "",
        f"parameters: learned, at {_size()}",
        "beyond: longer sequences than in training: published results show that it works (yes),",
        "        it is defined there (no), or an option decides (by policy); `zoo list NAME` shows options",
        *(note.strip().split("\n")[0] for note in notes),
    ])  # fmt: skip


def _one_encoding(one: registry.Description) -> str:
    if not one.builtin:
        registry.encodings.load(one.name)  # raises where it cannot be imported
    facts = [
        ("paper", one.paper),
        ("family", one.family),
        ("for", ", ".join(kinds_of(one))),
        ("for evaluation of", ", ".join(one.replaces)),
        ("learned parameters", f"{_count(one)[0]} (at {_size()})"),
        ("beyond training", beyond(one)),
        ("from", origin(one)),
        ("source", near(one.where)),
    ]
    lines = [f"{one.name}: {one.summary}", *(f"  {key}: {value}" for key, value in facts if value)]
    if one.options:
        lines.append("  options:")
    for option in one.options:
        default = "" if option.default is registry.REQUIRED else f" = {value_text(option.default)}"
        after = " (may be changed after training)" if option.name in one.after_training else ""
        lines.append(f"    {option.name}: {annotation_text(option.annotation)}{default}{after}")
    return "\n".join(lines)


def _count(one: registry.Description) -> tuple[str, str]:
    """The number of parameters that an encoding learns; or a dash, and why they cannot be counted."""
    note = f"cannot be used: {one.name}"
    try:
        if not one.builtin:
            registry.encodings.load(one.name)
        note = "not counted"
        return str(learned_parameters(one.name)), ""
    except InputError as error:
        return "-", f"{note}: {error}"


def _size() -> str:
    return f"width {WIDTH}, {LAYERS} layers, {HEADS} heads, length {LENGTH}"


def beyond(one: registry.Description) -> str:
    """What an encoding does past the trained length: yes, no, by policy, as wrapped."""
    if one.extrapolates == "no" and any(registry.holds_wrapped(o.annotation) for o in one.options):
        return "as wrapped"
    return "by policy" if one.extrapolates == "policy" else str(one.extrapolates)


def _role(one: registry.Description) -> str:
    return f"for evaluation of: {', '.join(one.replaces)}. {one.summary}" if one.replaces else one.summary


def origin(one: registry.Description) -> str:
    """The zoo, an installed package, or a file."""
    return "zoo" if one.builtin else one.package or near(str(one.file))


def _short_origin(one: registry.Description) -> str:
    """The origin without the folders of a file, so that a long path does not push the other columns away."""
    return origin(one) if one.builtin or one.package else one.file.name


def kinds_of(one: registry.Description) -> list[str]:
    """The models that an encoding fits: decoder, encoder."""
    return [kind for kind, fits in (("decoder", one.decoder), ("encoder", one.encoder)) if fits]


def near(where: str) -> str:
    """A path as seen from here, where that is shorter."""
    relative = os.path.relpath(where)
    return relative if len(relative) < len(where) else where


def _recipes(pattern: str | None) -> str:
    # In a checkout the recipes are next to the package, wherever the command is called.
    folder = RECIPES if RECIPES.is_dir() else Path(__file__).parent.parent / RECIPES
    files = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    # A base recipe can be run by itself, with the encoding from `--set`.
    files |= {f"base/{file.stem}": file for file in sorted(folder.glob("base/*.yaml"))}
    if not files:
        raise InputError(f"{RECIPES}/: no recipes here (*.yaml)")
    header = ("file", "encoding", "model", "data", "length", "steps", "description")
    return table(header, [_recipe(files[name]) for name in _matching(files, pattern, "recipe")])


def _recipe(file: Path) -> Row:
    shown = near(str(file))
    try:
        recipe = read_recipe(file)
    except InputError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        return shown, "broken", "", "", "", "", f"{error.problems[0]}{more}"
    label, length = encoding_label(recipe.model.encoding), str(recipe.data.sequence_length)
    steps = str(recipe.trainer.max_steps)
    return shown, label, recipe.model.kind, recipe.data.name, length, steps, _first_comment(file)


def _first_comment(file: Path) -> str:
    """The first line of the comment that a file begins with, its command apart; else that of its base."""
    for line in read_text(file, MAX_BYTES).lstrip().splitlines():
        if not line.startswith("#"):
            break
        comment = line.lstrip("# ").rstrip()
        if comment and not comment.startswith(("python -m zoo", "zoo ")):
            return comment
    base = read_file(file).plain().get("base")
    return _first_comment(file.parent / base) if base else ""


def _kind(what: str, pattern: str | None) -> str:
    kind, columns = _COLUMNS[what]
    rows = [
        (one.name, *(_cell(one, column) for column in columns.values()), origin(one), one.summary)
        for one in _described(kind, pattern)
    ]
    return table(("name", *columns, "from", "description"), rows)


def _cell(one: registry.Description, column: str | Callable[[registry.Description], str]) -> str:
    value = getattr(one, column) if isinstance(column, str) else column(one)
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _data_of(task: registry.Description) -> str:
    return ", ".join(name for name, about in registry.datasets.all().items() if about.gives == task.takes)


def _options_of(one: registry.Description) -> str:
    options = (
        option.name + ("" if option.default is registry.REQUIRED else f"={value_text(option.default)}")
        for option in one.options
        if option.name != "lr"
    )
    return ", ".join(options) or "-"


def _better(protocol: registry.Description) -> str:
    return "higher" if protocol.higher_is_better else "lower"


_COLUMNS: dict[str, tuple[registry.Registry, dict[str, Any]]] = {
    "datasets": (registry.datasets, {"gives": "gives", "where from": "source"}),
    "tasks": (registry.tasks, {"for": "kinds", "data": _data_of, "protocols": "protocols"}),
    "protocols": (
        registry.protocols,
        {"needs": "needs", "axis": "axis", "intervals over": "unit", "better": _better},
    ),
    "optimizers": (registry.optimizers, {"options": _options_of}),
    "schedules": (registry.schedules, {"options": _options_of}),
}
"""The columns of a kind: a fact of its classes, or what a function gives."""


def _described(kind: registry.Registry, pattern: str | None) -> list[registry.Description]:
    if pattern in kind.broken and pattern not in kind.names():
        raise InputError(kind.unknown(pattern))
    return [kind.describe(name) for name in _matching(kind.names(), pattern, kind.kind)]


_ON_CARDS = ("encoding", "task", "data", "train_length", "seed", "steps", "finished")


def _runs(pattern: str | None) -> str:
    cards = {file.parent.name: file for file in sorted(RUNS.glob("*/card.json"))}
    if not cards:
        raise InputError(f"{RUNS}/: no runs here; `zoo fit --recipe FILE` makes one")
    header = ("run", "encoding", "task", "data", "length", "seed", "steps", "finished")
    return table(header, [_run(cards[name]) for name in _matching(cards, pattern, "run")])


def _run(card_file: Path) -> Row:
    folder = str(card_file.parent)
    try:
        card = read_card(card_file.parent)
    except InputError as error:
        cause = "; ".join(problem.message for problem in error.problems)
        return folder, f"{card_file.name}: {cause}", *[""] * (len(_ON_CARDS) - 1)
    return folder, *(_card_text(card.get(key)) for key in _ON_CARDS)


def _card_text(value: Any) -> str:
    words = {None: "-", True: "yes", False: "no"}
    return words[value] if value is None or isinstance(value, bool) else shorten(str(value))


LISTS = {
    "encodings": _encodings,
    **{what: functools.partial(_kind, what) for what in _COLUMNS},
    "recipes": _recipes,
    "runs": _runs,
}
