"""What of an encoding may be changed on a trained model, and what such a change is called.

An encoding declares it: which of its options change no parameter (`after_training`), and which encodings it
may replace (`replaces`). All of it is read from the source, before torch is imported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from zoo import registry
from zoo.errors import InputError
from zoo.recipe.located_tree import KeyPath, dotted
from zoo.recipe.options import encoding_label, encodings_in

ENCODING = ("model", "encoding")


@dataclass
class Changes:
    """What differs between the encoding of a trained model and the one asked for, by dotted key.

    `allowed` holds the new values; `refused` holds why each other one makes another model.
    """

    allowed: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def keep_trained_options(trained: Any, asked: Any) -> Any:
    """The encoding asked for instead of a trained one; options that it does not give stay as trained.

    Both are as in a recipe; `asked` is not validated yet.
    """
    if isinstance(trained, list) and isinstance(asked, list) and len(trained) == len(asked):
        return [keep_trained_options(old, new) for old, new in zip(trained, asked, strict=True)]
    spec = {"name": asked} if isinstance(asked, str) else asked
    if not (isinstance(trained, dict) and isinstance(spec, dict) and isinstance(spec.get("name"), str)):
        return asked
    try:
        about = registry.encodings.describe(spec["name"])
    except InputError:
        return asked
    if trained["name"] not in (about.name, *about.replaces):
        return asked
    known = {option.name for option in about.options}
    kept = {name: value for name, value in trained.items() if name in known}
    # `model.encoding.name=...` leaves the trained one's own options where they were.
    left = {name for name, value in spec.items() if name not in known and trained.get(name, ...) == value}
    given = {name: value for name, value in spec.items() if name == "name" or name not in left}
    return {**kept, **{name: keep_trained_options(kept.get(name), value) for name, value in given.items()}}


def encoding_changes(trained: Any, asked: Any) -> Changes:
    """The differences between two resolved encodings."""
    changes = Changes()
    _compare(trained, asked, ENCODING, changes)
    return changes


def _compare(trained: Any, asked: Any, path: KeyPath, changes: Changes) -> None:
    if isinstance(trained, list) and isinstance(asked, list) and len(trained) == len(asked):
        for index, (old, new) in enumerate(zip(trained, asked, strict=True)):
            _compare(old, new, (*path, index), changes)
    elif isinstance(trained, dict) and isinstance(asked, dict):
        _compare_one(trained, asked, path, changes)
    elif trained != asked:
        old, new = (value and _label(value) for value in (trained, asked))
        changes.refused[dotted(path)] = f"the run was trained with {old!r}, and {new!r} would make it another"


def _compare_one(trained: dict[str, Any], asked: dict[str, Any], path: KeyPath, changes: Changes) -> None:
    before, after = registry.encodings.describe(trained["name"]), registry.encodings.describe(asked["name"])
    if before.name != after.name:
        if before.name not in after.replaces:
            changes.refused[dotted(path)] = (
                f"the run was trained with {before.name!r}, and {after.name!r} would make it another"
            )
            return
        changes.allowed[dotted((*path, "name"))] = after.name
        _refuse_lost_options(trained, before, after, path, changes)
    for option in after.options:
        here, new = (*path, option.name), asked.get(option.name)
        if option.name not in trained:
            changes.allowed[dotted(here)] = new
        elif registry.holds_wrapped(option.annotation):
            _compare(trained[option.name], new, here, changes)
        elif new != trained[option.name]:
            if option.name in before.after_training:
                changes.allowed[dotted(here)] = new
            else:
                changes.refused[dotted(here)] = (
                    f"the run was trained with {trained[option.name]!r}, and {new!r} would make it another"
                )


def _refuse_lost_options(
    trained: dict[str, Any],
    before: registry.Description,
    after: registry.Description,
    path: KeyPath,
    changes: Changes,
) -> None:
    """Refuse a replacement that lacks an option which the training made use of."""
    shared = {option.name for option in after.options}
    for option in before.options:
        value = trained.get(option.name, option.default)
        if option.name not in shared and value != _as_resolved(option.default):
            changes.refused[dotted((*path, option.name))] = (
                f"the run was trained with {value!r}, which {after.name} does not have"
            )


def changed_label(spec: Any, changed: dict[str, Any]) -> str:
    """A resolved encoding in a word, with what was changed of it: `rope scaling=yarn factor=4`.

    Of an encoding that replaces another, options at their default are left out.
    """
    defaults = {}
    for path, name in encodings_in(spec, ENCODING):
        if dotted((*path, "name")) in changed:
            options = registry.encodings.describe(name).options
            defaults |= {dotted((*path, option.name)): _as_resolved(option.default) for option in options}
    options = [
        f"{key.removeprefix(dotted(ENCODING) + '.')}={_value_text(value)}"
        for key, value in changed.items()
        if not key.endswith(".name") and not (key in defaults and defaults[key] == value)
    ]
    return " ".join([encoding_label(spec), *options])


def may_change(spec: Any) -> list[str]:
    """The keys of a resolved encoding that may be set on a trained model."""
    keys = []
    every = [registry.encodings.describe(name) for name in registry.encodings.names()]
    for path, name in encodings_in(spec, ENCODING):
        keys += [dotted((*path, option)) for option in registry.encodings.describe(name).after_training]
        instead = [one.name for one in every if name in one.replaces]
        if instead:
            keys.append(f"{dotted(path)} (to {' or '.join(instead)})")
    return keys


def _label(value: Any) -> str:
    label = encoding_label(value)
    return f"[{label}]" if isinstance(value, list) else label


def _as_resolved(default: Any) -> Any:
    return list(default) if isinstance(default, tuple) else default


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    # In full: two changes that differ in their last digit are two lines of a plot.
    return repr(value).removesuffix(".0") if isinstance(value, float) else json.dumps(value)
