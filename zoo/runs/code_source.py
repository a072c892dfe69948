"""The origin of the code of a run's encoding, dataset, task, ... outside the zoo: a plugin file or an
installed package.

The card records it, so that an error can name what a checkpoint needs.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from zoo.launch.ranks import is_first_process
from zoo.recipe.encoding import encodings_in
from zoo.recipe.sections import NAMES
from zoo.registry import KINDS, Description

Source = dict[str, Any]
"""{"name", "sha256" of its file or of its package, and "file" or "package" with "version"}, all text; and the
"kind" where it is not an encoding."""


def encoding_sources(encoding: Any) -> list[Source]:
    """The sources of a resolved encoding and of those inside it, the zoo's own left out."""
    return _sources("encoding", dict.fromkeys(about.name for _, about in encodings_in(encoding, ())))


def code_sources(recipe: dict[str, Any]) -> list[Source]:
    """The sources of all that a resolved recipe names, the zoo's own left out."""
    sources = encoding_sources(recipe["model"]["encoding"])
    for section, keys in NAMES.items():
        for key, kind in keys.items():
            names = recipe[section][key] or ()
            sources += _sources(kind.kind, [names] if isinstance(names, str) else names)
    return sources


def recorded_sources(card: dict[str, Any] | None) -> list[Source]:
    """The sources on the card of a run, if any."""
    return (card or {}).get("code_source") or []


def packages(sources: Sequence[Source]) -> list[str]:
    """The installed packages among sources, as `pip install` takes them."""
    return sorted({f"{one['package']}=={one['version']}" for one in sources if "package" in one})


def compare_code(card: dict[str, Any] | None, path: Path) -> tuple[list[str], dict[str, str]]:
    """Compare the code of a training with the code that is registered now, and warn of changes.

    Args:
        path: the run or checkpoint that the warnings name.

    Returns: a sentence on each class that is missing, with what brings it, and the digests of changed ones.
    """
    missing, digests = [], {}
    for then in recorded_sources(card):
        kind, name = KINDS[then.get("kind", "encoding")], then["name"]
        if name not in kind.all():
            missing.append(f"trained with {kind.kind} {name!r} of {_origin(then)}{_remedy(then)}")
            continue
        now = _source(kind.kind, name)
        if any(then.get(key) != now.get(key) for key in ("sha256", "package", "version")):
            digests[f"code.{name}"] = now["sha256"][:12]
            if is_first_process():
                change = f"then {_origin(then)}, now {_origin(now)}"
                text = f"{kind.kind} {name!r} may have changed since it was trained: {change}"
                print(f"warning: {path}: {text}", file=sys.stderr)
    return missing, digests


def _sources(kind: str, names: Iterable[str]) -> list[Source]:
    return [_source(kind, name) for name in names if not KINDS[kind].describe(name).builtin]


def _source(kind: str, name: str) -> Source:
    about = KINDS[kind].describe(name)
    origin = {"file": str(about.file)}
    if about.package is not None:
        package, _, version = about.package.rpartition(" ")
        origin = {"package": package, "version": version}
    of_kind = {} if kind == "encoding" else {"kind": kind}
    return {"name": name, **origin, "sha256": _digest(about), **of_kind}


def _digest(about: Description) -> str:
    """Of the file of a class; of an installed one, of all modules of its package."""
    module = sys.modules.get(about.cls.__module__.split(".")[0]) if about.package else None
    folders = getattr(module, "__path__", ())
    files = {file.relative_to(one): file for one in folders for file in Path(one).rglob("*.py")}
    try:
        if not files:
            return hashlib.sha256(about.file.read_bytes()).hexdigest()
        lines = (f"{name} {hashlib.sha256(files[name].read_bytes()).hexdigest()}\n" for name in sorted(files))
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    except OSError:  # a class of a notebook
        return ""


def _origin(source: Source) -> str:
    origin = f"{source['package']} {source['version']}" if "package" in source else source["file"]
    return f"{origin} (sha256 {source['sha256'][:12] or 'unknown'})"


def _remedy(source: Source) -> str:
    if "package" in source:
        return f": pip install {packages([source])[0]}"
    file = source["file"]
    if not file.endswith(".py"):
        return ": register it again before you load this"
    return (
        f"; a plugin is code and runs only when you name it: --set plugins=[{file}], or "
        f'plugins=["{file}"] in Python'
    )
