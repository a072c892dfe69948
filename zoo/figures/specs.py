"""Encodings as a command names them, before anything heavy is imported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.errors import InputError, Problem, collect, nearest
from zoo.figures.style import styles
from zoo.recipe.encoding import check_encoding, encoding_label
from zoo.recipe.located_tree import dotted
from zoo.recipe.yaml_file import read_value

SUFFIXES = (".png", ".svg", ".gif", ".html")
TRAINED, LENGTH, HEADS, D_MODEL = 64, 256, 4, 128
PAIRS = 4 * 1024**2
"""Of tokens, times heads, of which tables are held for every content."""
MOST = 8
"""Encodings beside each other."""


def read_specs(texts: Sequence[str]) -> list[Any]:
    """The encodings that the texts name, resolved.

    Each is a name, `{name: rope, base: 500000}` or a list as in a recipe, a plugin's file (all encodings in
    it), or one of them, `FILE.py:NAME`.

    Raises InputError with all that is wrong with any of them.
    """
    found: list[Any] = []
    problems: list[Problem] = []
    for text in texts:
        with collect(problems):
            found += [resolved(one) for one in _named(text.strip())]
    if len(found) > MOST:
        problems.append(Problem(f"{len(found)} encodings do not fit beside each other: give at most {MOST}"))
    if problems:
        raise InputError(problems)
    return found


def check_suffix(path: Path) -> None:
    """Raises InputError where a file's suffix is none that a figure has."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out {path}: a picture ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")


def check_sizes(length: int, trained: int, heads: int, d_model: int) -> None:
    """Raises InputError where the numbers do not go together, or are too large for a picture."""
    sizes = {"--length": length, "--trained": trained, "--heads": heads, "--d-model": d_model}
    problems = [
        Problem(f"{value} is not 1 or more", where=name) for name, value in sizes.items() if value < 1
    ]
    if not problems and trained > length:
        problems.append(Problem(f"{trained} is beyond --length {length}", where="--trained"))
    if not problems and d_model % (2 * heads):
        problems.append(Problem(f"{d_model} is no multiple of twice --heads {heads}", where="--d-model"))
    if not problems and length * length * heads > PAIRS:
        most = int((PAIRS / heads) ** 0.5)
        problems.append(Problem(
            f"{length} tokens of {heads} heads are too many pairs for a picture: give at most {most}",
            where="--length",
        ))  # fmt: skip
    if problems:
        raise InputError(problems)


def resolved(spec: Any) -> Any:
    """An encoding with every option given; InputError for one that cannot be."""
    made, faults = check_encoding(spec, ("encoding",))
    if faults:
        raise InputError([Problem(fault, key=dotted(path)) for path, fault in faults.items()])
    return made


def labels_of(resolved: Sequence[Any]) -> list[str]:
    """A name for each encoding, with the options that are not its defaults."""
    made = []
    for spec in resolved:
        label = encoding_label(spec)
        if isinstance(spec, dict):
            options = registry.encodings.describe(spec["name"]).options
            changed = {one.name: spec[one.name] for one in options if spec[one.name] != one.default}
            given = (f"{key}={_text(value)}" for key, value in changed.items() if not _nested(value))
            label = " ".join([label, *given])
        made.append(label)
    return [f"{label} ({n})" if made.count(label) > 1 else label for n, label in enumerate(made, 1)]


def colors_of(resolved: Sequence[Any]) -> list[str]:
    """A colour for each encoding: that of its name where it is the only one of that name."""
    names = [encoding_label(spec) for spec in resolved]
    labels = labels_of(resolved)
    keys = [name if names.count(name) == 1 else label for name, label in zip(names, labels, strict=True)]
    looks = styles(keys)
    return [looks[key].color for key in keys]


def file_name(labels: Sequence[str]) -> str:
    """The name of a picture of these, without suffix: `alibi_rope`."""
    return "_".join(re.sub(r"[^A-Za-z0-9.=-]+", "-", label).strip("-") for label in labels)[:120]


def _nested(value: Any) -> bool:
    return isinstance(value, dict | list | tuple)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _named(text: str) -> list[Any]:
    if text.startswith(("{", "[")):
        return [read_value(text, text)]
    file, colon, name = text.rpartition(":")
    if colon and file.endswith(".py"):
        names = [one.name for one in registry.load_plugin(file) if one.kind == "encoding"]
        if name not in names:
            near = nearest(name, names)
            hint = f"did you mean {near!r}?" if near else f"there is: {', '.join(names) or 'none'}"
            raise InputError(f"{file} registers no encoding {name!r}; {hint}")
        return [name]
    if text.endswith(".py"):
        names = [one.name for one in registry.load_plugin(text) if one.kind == "encoding"]
        if not names:
            raise InputError(f"{Path(text)} registers no encoding")
        return names
    registry.encodings.describe(text)
    return [text]
