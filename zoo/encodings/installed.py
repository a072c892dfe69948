"""Encodings of installed packages: found through the entry-point group `zoo.encodings`, and read, not run.

A package advertises the module that holds its encodings:

    [project.entry-points."zoo.encodings"]
    root = "their_package.root"

One that cannot be read breaks only itself, and of several that have one name none is taken: which came first
would depend on the order of installation.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from zoo.encodings.description import Classes, Description, read_descriptions
from zoo.errors import InputError

GROUP = "zoo.encodings"


@dataclass(frozen=True)
class Installed:
    """What installed packages bring: encodings by name, and by name why one cannot be used."""

    found: dict[str, Description]
    broken: dict[str, str]


def read_installed(builtin: Mapping[str, Description], package: Classes) -> Installed:
    """The encodings of all installed packages.

    Args:
        builtin: the zoo's own, whose names cannot be taken.
        package: the zoo's own classes, from which theirs may derive.
    """
    claims: dict[str, list[Description]] = {}
    broken: dict[str, list[str]] = {}
    for point in entry_points(group=GROUP):
        try:
            for new in _read(point, package):
                claims.setdefault(new.name, []).append(new)
        except Exception as error:  # whatever a stranger's file is, the others must work
            cause = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            broken.setdefault(point.name, []).append(f"package {_package(point)}: {cause}")
    found = {}
    for name, several in claims.items():
        places = list(dict.fromkeys(f"package {one.package} ({one.where})" for one in several))
        if name in builtin:
            broken.setdefault(name, []).extend(
                f"{place}: the name {name!r} is taken by {builtin[name].where}" for place in places
            )
        elif len(places) > 1:
            broken.setdefault(name, []).append(
                f"the name {name!r} is claimed by {' and by '.join(places)}; uninstall all but one"
            )
        else:
            found[name] = several[0]
    return Installed(found, {name: "; ".join(causes) for name, causes in broken.items()})


def _read(point: EntryPoint, package: Classes) -> list[Description]:
    found = read_descriptions(_file(point.module), package, point.module)
    if not found:
        raise InputError(
            f'no class in {point.module} is decorated with @zoo.register("NAME"); '
            f"the module to advertise is the one that holds it"
        )
    return [replace(one, package=_package(point)) for one in found]


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _file(module: str) -> Path:
    """The source of a module. Its parents are not imported: they are a stranger's code."""
    top, *below = module.split(".")
    spec, name = importlib.util.find_spec(top), top
    for part in below:
        if spec is None:
            break
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise InputError(f"no module {module!r}")
    return Path(spec.origin).resolve()
