"""Where the code of a run's encoding, dataset, task, ... came from, when that is not the zoo: a plugin file or an
installed package.

The card records it, so that an error can name what a checkpoint needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.recipe.encoding import encodings_in

Source = dict[str, Any]
"""{"name", "sha256" of its file, and "file" or "package" with "version"}, all text; and the "kind" where it is
not an encoding."""


def encoding_sources(encoding: Any) -> list[Source]:
    """The sources of a resolved encoding and of those inside it, the zoo's own left out."""
    names = dict.fromkeys(name for _, name in encodings_in(encoding, ()))
    return [_source(name) for name in names if not registry.encodings.describe(name).builtin]


def code_sources(recipe: dict[str, Any]) -> list[Source]:
    """The sources of all that a resolved recipe names, the zoo's own left out."""
    optimizer = recipe["optimizer"]
    named = {
        "dataset": [recipe["data"]["name"]],
        "task": [recipe["task"]["name"]],
        "optimizer": [optimizer["name"]],
        "schedule": [optimizer["schedule"]],
        "protocol": recipe["evaluate"]["protocols"] or (),
    }
    others = [(kind, name) for kind, names in named.items() for name in names]
    return encoding_sources(recipe["model"]["encoding"]) + [
        _source(name, kind) for kind, name in others if not registry.KINDS[kind].describe(name).builtin
    ]


def recorded_sources(card: dict[str, Any] | None) -> list[Source]:
    """The sources on the card of a run, if any; those without the keys of a source are left out."""
    wanted = ({"name", "file", "sha256"}, {"name", "package", "version", "sha256"})
    sources = (card or {}).get("code_source") or []
    return [
        source
        for source in sources
        if source.keys() - {"kind"} in wanted and source.get("kind", "encoding") in registry.KINDS
    ]


def _kind(source: Source) -> registry.Registry:
    return registry.KINDS[source.get("kind", "encoding")]


def describe_missing(sources: Sequence[Source]) -> list[str]:
    """A sentence on each class that is not registered now: what brings it, and what to do."""
    gone = [source for source in sources if source["name"] not in _kind(source).all()]
    files = [source for source in gone if "package" not in source]
    return [*map(_missing_package, (s for s in gone if "package" in s)), *_missing_files(files)]


def describe_changes(sources: Sequence[Source]) -> list[str]:
    """A sentence on each class whose code is another now than in training."""
    return [
        f"{_kind(then).kind} {then['name']!r} may have changed since it was trained: then {_origin_text(then)}, "
        f"now {_origin_text(now)}"
        for then, now in _changed(sources)
    ]


def changed_digests(sources: Sequence[Source]) -> dict[str, str]:
    """The digests of code that is another now than in training."""
    return {f"code.{now['name']}": now["sha256"][:12] for _, now in _changed(sources)}


def _changed(sources: Sequence[Source]) -> list[tuple[Source, Source]]:
    known = [then for then in sources if then["name"] in _kind(then).all()]
    pairs = [(then, _source(then["name"], _kind(then).kind)) for then in known]
    keys = ("sha256", "package", "version")
    return [(then, now) for then, now in pairs if any(then.get(key) != now.get(key) for key in keys)]


def _source(name: str, kind: str = "encoding") -> Source:
    about = registry.KINDS[kind].describe(name)
    of_kind = {} if kind == "encoding" else {"kind": kind}
    try:
        digest = hashlib.sha256(about.file.read_bytes()).hexdigest()
    except OSError:  # a class of a notebook
        digest = ""
    if about.package is None:
        return {"name": name, "file": str(about.file), "sha256": digest, **of_kind}
    package, _, its_version = about.package.rpartition(" ")
    return {"name": name, "package": package, "version": its_version, "sha256": digest, **of_kind}


def _origin_text(source: Source) -> str:
    origin = f"{source['package']} {source['version']}" if "package" in source else source["file"]
    return f"{origin} (sha256 {source['sha256'][:12] or 'unknown'})"


def _missing_package(source: Source) -> str:
    name, package, wanted = source["name"], source["package"], source["version"]
    kind = _kind(source)
    needs = f"trained with {kind.kind} {name!r} of the package {package} {wanted}"
    if name in kind.broken:
        return f"{needs}, which cannot be used: {kind.broken[name]}"
    try:
        return f"{needs}; {package} {version(package)} is installed, and has no such {kind.kind}"
    except PackageNotFoundError:
        return f"{needs}, which is not installed here: pip install {package}=={wanted}"


def _missing_files(sources: Sequence[Source]) -> list[str]:
    if not sources:
        return []
    of = " and ".join(f"{_kind(one).kind} {one['name']!r} of {_origin_text(one)}" for one in sources)
    files = list(dict.fromkeys(source["file"] for source in sources if Path(source["file"]).suffix == ".py"))
    if not files:
        return [f"trained with {of}: register it again before you load this"]
    quoted = ", ".join(f'"{file}"' for file in files)
    return [
        f"trained with {of}; a plugin is code and runs only when you name it: "
        f"--set plugins=[{','.join(files)}], or plugins=[{quoted}] in Python"
    ]
