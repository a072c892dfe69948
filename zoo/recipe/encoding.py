"""An encoding as a recipe has it: its parts, its label, and the options that a trained model may change.

An encoding declares which of its options change no parameter (`after_training`), and which encodings it may
replace (`replaces`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from zoo import registry
from zoo.errors import InputError
from zoo.recipe.error_messages import Faults, explain_validation_error
from zoo.recipe.sections import resolve_encoding
from zoo.recipe.tree import KeyPath, dotted, to_yaml_line

ENCODING = ("model", "encoding")


def check_encoding(spec: Any, path: KeyPath) -> tuple[Any, Faults]:
    """An encoding with every option given, and its faults by key path.

    `spec` is a name, a mapping of a name and its options, or a list of such. The result is a mapping, or a
    list of mappings, of plain values; None where there are faults.
    """
    try:
        return resolve_encoding(spec), {}
    except ValidationError as error:
        from zoo.encodings.parameters import representative  # imports torch

        found = [*encodings_in(spec, ())]
        keys = {at: ["name", *(option.name for option in about.options)] for at, about in found}
        faults = explain_validation_error(error, spec, keys)
        for at, about in found:
            for key in about.wrapping:
                if faults.get((*at, key)) == "missing":
                    with suppress(InputError):  # no plain encoding is an example
                        faults[*at, key] = f"missing, as in {to_yaml_line(representative(about.name))}"
        return None, {(*path, *below): message for below, message in faults.items()}


def encodings_in(spec: Any, path: KeyPath) -> Iterator[tuple[KeyPath, registry.Description]]:
    """Every registered encoding in one as a recipe has it, wrapped ones too, with its key path."""
    if isinstance(spec, list | tuple):
        for index, part in enumerate(spec):
            yield from encodings_in(part, (*path, index))
        return
    spec = {"name": spec} if isinstance(spec, str) else spec
    if isinstance(spec, dict) and (about := registry.encodings.all().get(str(spec.get("name")))):
        yield path, about
        for key in about.wrapping:
            yield from encodings_in(spec.get(key), (*path, key))


def encoding_label(spec: Any) -> str:
    """A resolved encoding in a word: its name, and those of the encodings in it or combined with it.

    Encodings of a list with one name and different options have those that are not the default, and equal
    neighbours are counted: `interleave(5x rope+rope base=1000000)`.
    """
    if isinstance(spec, list | tuple):
        names = [*map(encoding_label, spec)]
        labels = [" ".join([name, *_own_options(one, spec)]) for one, name in zip(spec, names, strict=True)]
        if labels != names:
            counts = [(label, len([*same])) for label, same in itertools.groupby(labels)]
            labels = [label if count == 1 else f"{count}x {label}" for label, count in counts]
        return "+".join(labels)
    wrapping = registry.encodings.describe(spec["name"]).wrapping
    inside = [encoding_label(spec[key]) for key in wrapping if spec.get(key) is not None]
    return f"{spec['name']}({', '.join(inside)})" if inside else spec["name"]


def _own_options(spec: dict[str, Any], combined: Sequence[dict[str, Any]]) -> list[str]:
    """The options of a resolved encoding that are neither the default nor those of all others of its name."""
    about = registry.encodings.describe(spec["name"])
    defaults, others = _defaults(about), [one for one in combined if one["name"] == spec["name"]]
    return [
        f"{key}={_value_text(value)}"
        for key, value in spec.items()
        if key not in about.wrapping
        and value != defaults.get(key)
        and any(o.get(key) != value for o in others)
    ]


def _defaults(about: registry.Description) -> dict[str, Any]:
    return {
        option.name: list(option.default) if isinstance(option.default, tuple) else option.default
        for option in about.options
    }


def keep_trained_options(trained: Any, asked: Any) -> Any:
    """The encoding asked for instead of a trained one; options that it does not give stay as trained.

    Both are as in a recipe; `asked` is not validated yet.
    """
    if isinstance(trained, list) and isinstance(asked, list) and len(trained) == len(asked):
        return [keep_trained_options(old, new) for old, new in zip(trained, asked, strict=True)]
    spec = {"name": asked} if isinstance(asked, str) else asked
    if not (isinstance(trained, dict) and isinstance(spec, dict) and isinstance(spec.get("name"), str)):
        return asked
    about = registry.encodings.all().get(spec["name"])
    if about is None or trained["name"] not in (about.name, *about.replaces):
        return asked
    known = {option.name for option in about.options}
    kept = {name: value for name, value in trained.items() if name in known}
    # `model.encoding.name=...` leaves the trained one's own options where they were.
    left = {name for name, value in spec.items() if name not in known and trained.get(name, ...) == value}
    given = {name: value for name, value in spec.items() if name == "name" or name not in left}
    return {**kept, **{name: keep_trained_options(kept.get(name), value) for name, value in given.items()}}


def encoding_changes(
    trained: Any, asked: Any, path: KeyPath = ENCODING
) -> Iterator[tuple[str, Any, Any, bool]]:
    """Every difference between two resolved encodings: dotted key, both values, and whether a trained model
    may have it."""
    if isinstance(trained, list) and isinstance(asked, list) and len(trained) == len(asked):
        for index, pair in enumerate(zip(trained, asked, strict=True)):
            yield from encoding_changes(*pair, (*path, index))
        return
    every = registry.encodings.all()
    after = every[asked["name"]] if isinstance(asked, dict) else None
    if after is None or not isinstance(trained, dict) or trained["name"] not in (after.name, *after.replaces):
        if trained != asked:
            yield dotted(path), _label(trained), _label(asked), False
        return
    before, defaults = every[trained["name"]], _defaults(every[trained["name"]])
    for key in {**asked, **trained}:
        old, new, shown = trained.get(key), asked.get(key), dotted((*path, key))
        if key in after.wrapping and key in trained:
            yield from encoding_changes(old, new, (*path, key))
        elif key not in asked and old != defaults[key]:
            yield shown, old, f"{after.name} without {key}", False
        elif key in asked and (key not in trained or old != new):
            yield shown, old, new, key not in trained or key in ("name", *before.after_training)


def _label(value: Any) -> str | None:
    return f"[{encoding_label(value)}]" if isinstance(value, list) else value and encoding_label(value)


def changed_label(spec: Any, changed: dict[str, Any]) -> str:
    """A resolved encoding in a word, with its changed options: `rope scaling=yarn factor=4`.

    Options at their default are left out if an encoding replaces another.
    """
    defaults = {
        dotted((*path, key)): value
        for path, about in encodings_in(spec, ENCODING)
        if dotted((*path, "name")) in changed
        for key, value in _defaults(about).items()
    }
    options = [
        f"{key.removeprefix(dotted(ENCODING) + '.')}={_value_text(value)}"
        for key, value in changed.items()
        if not key.endswith(".name") and not (key in defaults and defaults[key] == value)
    ]
    return " ".join([encoding_label(spec), *options])


def may_change(spec: Any) -> list[str]:
    """The keys of a resolved encoding that may be set on a trained model."""
    keys = []
    for path, about in encodings_in(spec, ENCODING):
        keys += [dotted((*path, option)) for option in about.after_training]
        known = registry.encodings.all().values()
        if instead := sorted(one.name for one in known if about.name in one.replaces):
            keys.append(f"{dotted(path)} (to {' or '.join(instead)})")
    return keys


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    # In full: two changes that differ in their last digit are two lines of a plot.
    return repr(value).removesuffix(".0") if isinstance(value, float) else json.dumps(value)
