"""The subjects of an encoding: its defaults, and every other value of the options that list theirs."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from zoo import registry
from zoo.contract.law import first_line
from zoo.contract.small_model import KINDS, Kind, Subject, kinds_of
from zoo.errors import InputError
from zoo.registry import Description, Option

INSIDE = ("sinusoidal", "rope", "t5", "alibi", "shaw")
"""Encodings that a wrapper is tried around: one of each family, and a bias without parameters too."""


@dataclass
class Variants:
    """The subjects of an encoding, and the options that it refused: label and reason."""

    subjects: list[Subject] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


def variants(description: Description, strict: bool | None = None) -> Variants:
    """Every subject of an encoding.

    An option value that is refused at the small size is left out and reported; the defaults must work.
    """
    found = Variants()
    strict = description.builtin if strict is None else strict
    wraps = bool(_required(description))
    defaults = {"name", *_required(description)}
    for spec, label in _specs(description):
        is_default = isinstance(spec, str) or spec.keys() <= defaults
        for subject in _subjects(spec, label, is_default and not found.subjects, strict):
            refusal = _refusal(spec, subject.kind)
            # A wrapper must accept at least one encoding; any other encoding, its defaults.
            if refusal is not None and (wraps or not is_default):
                found.refused.append((str(subject), refusal))
            else:
                found.subjects.append(subject)
    if not found.subjects:
        # The law "it can be built" reports why not.
        found.subjects = _subjects(*next(_specs(description)), True, strict)
    return found


def given(spec: Any, label: str, strict: bool = True) -> list[Subject]:
    """The subjects of one encoding with given options, or of a list."""
    is_default = not isinstance(spec, list) and (isinstance(spec, str) or spec.keys() <= {"name"})
    return _subjects(spec, label, is_default, strict)


def needs(description: Description) -> list[str]:
    """The options without which it cannot be tried: required ones that hold no encoding."""
    return [
        option.name
        for option in description.options
        if option.default is registry.REQUIRED and not registry.holds_wrapped(option.annotation)
    ]


def listed(option: Option) -> tuple[Any, ...]:
    """The values that an option lists, without its default; none if it lists none."""
    if option.annotation is bool:
        values: tuple[Any, ...] = (True, False)
    elif typing.get_origin(option.annotation) is typing.Literal:
        values = typing.get_args(option.annotation)
    else:
        return ()
    return tuple(value for value in values if value != option.default)


def _specs(description: Description) -> Iterator[tuple[Any, str]]:
    name, first = description.name, True
    for filled, inside in _filled(description):
        spec = {"name": name, **filled}
        label = f"{name}({inside})" if inside else name
        yield (spec if filled else name), label
        if not first or (filled and all(_refusal(spec, kind) is not None for kind in _kinds(spec))):
            continue
        first = False  # an option of a wrapper is tried around one encoding
        for option in description.options:
            for value in listed(option):
                yield {**spec, option.name: value}, f"{label} {option.name}={value}"


def _filled(description: Description) -> Iterator[tuple[dict[str, Any], str]]:
    """Values for the required options that hold other encodings."""
    wrapping = [option for option in description.options if option.name in _required(description)]
    if not wrapping:
        yield {}, ""
        return
    for name in INSIDE:
        inside = {
            option.name: [name, "none"] if registry.holds_several(option.annotation) else name
            for option in wrapping
        }
        yield inside, f"{name}+none" if any(isinstance(v, list) for v in inside.values()) else name


def _required(description: Description) -> list[str]:
    return [
        option.name
        for option in description.options
        if option.default is registry.REQUIRED and registry.holds_wrapped(option.annotation)
    ]


def _refusal(spec: Any, kind: Kind) -> str | None:
    """Why the encoding refuses these options; None if it accepts them or fails otherwise."""
    try:
        _ = Subject(spec, kind).stack
    except InputError as error:
        return first_line(error).removeprefix("InputError: ")
    except (Exception, SystemExit):
        return None
    return None


def _subjects(spec: Any, label: str, is_default: bool, strict: bool) -> list[Subject]:
    return [Subject(spec, kind, label, is_default, strict, kinds_of(spec)) for kind in _kinds(spec)]


def _kinds(spec: Any) -> tuple[Kind, ...]:
    # A law reports an encoding that is for neither.
    return kinds_of(spec) or KINDS[:1]
