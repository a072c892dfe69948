"""Which positional encodings there are, and what each one takes.

The registry reads plugin files without running them: names, facts and options come from the source, so that
recipes are checked, and encodings listed, before torch is imported. A plugin's code runs only when it is built.

Plugins are found in three places: the files of this package, a file that a recipe names under `plugins:`, and
installed packages that advertise a module in the entry-point group `zoo.encodings`.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import InputError, Problem
from zoo.signatures import REQUIRED, Option, options_of

if TYPE_CHECKING:
    from zoo.encodings.base import Encoding

__all__ = ["REQUIRED", "WRAPPED", "Description", "describe", "load", "names", "read_plugin", "register"]

PACKAGE = Path(__file__).parent
ENTRY_POINTS = "zoo.encodings"
FACTS = {
    "paper": "",
    "family": "",
    "decoder": True,
    "encoder": True,
    "relative": False,
    "extrapolates": "no",
    "distance_only": False,
    "per_layer": False,
}


class WRAPPED:
    """The annotation of an option that holds another encoding. In source it is written `Encoding`."""


@dataclass(frozen=True)
class Description:
    """What an encoding says of itself, read from its source."""

    name: str
    summary: str
    paper: str
    family: str
    decoder: bool
    encoder: bool
    relative: bool
    extrapolates: str
    distance_only: bool
    per_layer: bool
    options: tuple[Option, ...]
    class_name: str
    file: Path
    line: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


_classes: dict[str, type[Encoding]] = {}
_plugins: dict[str, Description] = {}
_broken: dict[str, str] = {}


def register(name: str) -> Callable[[type[Encoding]], type[Encoding]]:
    """Class decorator: makes an `Encoding` known under a name.

    Raises:
        InputError: the name belongs to another class already; both are named.
    """

    def decorate(cls: type[Encoding]) -> type[Encoding]:
        taken = _classes.get(name)
        # The same class met twice (a plugin file run again) replaces itself.
        if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InputError(
                f"two encodings are called {name!r}: {taken.__module__}.{taken.__qualname__} and "
                f"{cls.__module__}.{cls.__qualname__}; rename one"
            )
        cls.name = name
        _classes[name] = cls
        return cls

    return decorate


def names() -> list[str]:
    """Every known name, sorted."""
    return sorted(_all())


def broken() -> dict[str, str]:
    """Installed plugins that could not be read: the advertised name, and why."""
    _installed()
    return dict(_broken)


def describe(name: str) -> Description:
    """What the encoding of this name says of itself.

    Raises:
        InputError: there is none; the nearest name is suggested.
    """
    known = _all()
    if name in known:
        return known[name]
    raise InputError(unknown(name))


def unknown(name: str) -> str:
    """The message for a name that is not registered."""
    if name in broken():
        return f"encoding {name!r} cannot be used: {_broken[name]}"
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names())}"
    return f"no encoding {name!r}; {hint} (one of your own: `plugins: [my_encoding.py]`)"


def read_plugin(path: str | Path) -> list[Description]:
    """Make the encodings of a Python file known, by reading it; nothing in it is run.

    Raises:
        InputError: no such file, a syntax error in it, no encoding in it, or a name that is taken.
    """
    path = Path(path).resolve()
    found = _read_source(path)
    if not found:
        raise InputError(f"{path}: no class here is decorated with @zoo.register(...)")
    known = _all()
    problems = [
        Problem(f"the name {new.name!r} is taken by {known[new.name].where}; choose another", where=new.where)
        for new in found
        if new.name in known and known[new.name].file != path
    ]
    if problems:
        raise InputError(problems)
    _plugins.update({new.name: new for new in found})
    return found


def load(name: str) -> type[Encoding]:
    """The class itself; imports the file that holds it.

    Raises:
        InputError: no such name, or its file cannot be imported (the cause is told).
    """
    description = describe(name)
    if name not in _classes:
        _run(description)
    return _classes[name]


def _run(description: Description) -> None:
    file = description.file
    inside = file.parent == PACKAGE
    module_name = f"zoo.encodings.{file.stem}" if inside else f"zoo_plugin_{file.stem}"
    try:
        if inside:
            importlib.import_module(module_name)
            return
        spec = importlib.util.spec_from_file_location(module_name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
    except InputError:
        raise
    except Exception as error:
        if inside:
            raise
        sys.modules.pop(module_name, None)
        raise InputError(f"{file}: the plugin cannot be imported: {type(error).__name__}: {error}") from error


def _all() -> dict[str, Description]:
    return {**_builtin(), **_installed(), **_plugins}


@lru_cache(maxsize=1)
def _builtin() -> dict[str, Description]:
    found: dict[str, Description] = {}
    for file in sorted(PACKAGE.glob("*.py")):
        for new in _read_source(file):
            if new.name in found:
                raise InputError(f"{new.where}: the name {new.name!r} is taken by {found[new.name].where}")
            found[new.name] = new
    return found


@lru_cache(maxsize=1)
def _installed() -> dict[str, Description]:
    """Encodings of installed packages. One that cannot be read breaks only itself."""
    found: dict[str, Description] = {}
    for point in entry_points(group=ENTRY_POINTS):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        try:
            spec = importlib.util.find_spec(point.module)
            if spec is None or spec.origin is None:
                raise InputError(f"no module {point.module!r}")
            for new in _read_source(Path(spec.origin)):
                taken = {**_builtin(), **found}.get(new.name)
                if taken is not None:
                    raise InputError(f"{new.where}: the name {new.name!r} is taken by {taken.where}")
                found[new.name] = new
        except Exception as error:
            _broken[point.name] = f"package {package}: {type(error).__name__}: {error}"
    return found


def _read_source(file: Path) -> list[Description]:
    try:
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(f"{file}:{line or 1}: not Python: {getattr(error, 'msg', error)}") from error
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found = []
    for node in classes.values():
        name = _registered_name(node)
        if name is not None:
            found.append(_describe_class(name, node, classes, file))
    return found


def _registered_name(node: ast.ClassDef) -> str | None:
    for decorator in node.decorator_list:
        if not (isinstance(decorator, ast.Call) and decorator.args):
            continue
        called = decorator.func
        called_name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
        first = decorator.args[0]
        if called_name == "register" and isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
    return None


def _describe_class(name: str, node: ast.ClassDef, classes: dict[str, ast.ClassDef], file: Path) -> Description:
    facts = dict(FACTS)
    options: tuple[Option, ...] = ()
    # From the farthest ancestor down, so that the nearest word counts.
    for ancestor in reversed(_lineage(node, classes)):
        facts.update(_facts(ancestor))
        own = options_of(ancestor, {"Encoding": WRAPPED})
        options = options if own is None else own
    docstring = ast.get_docstring(node) or ""
    return Description(
        name=name,
        summary=docstring.split("\n\n")[0].replace("\n", " "),
        options=options,
        class_name=node.name,
        file=file,
        line=node.lineno,
        **facts,
    )


def _lineage(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """The class and those of its ancestors that stand in the same file."""
    lineage = [node]
    for base in node.bases:
        parent = classes.get(getattr(base, "id", ""))
        if parent is not None and parent is not node:
            lineage += _lineage(parent, classes)
    return lineage


def _facts(node: ast.ClassDef) -> dict[str, object]:
    facts: dict[str, object] = {}
    for statement in node.body:
        target = None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target = statement.target
        if isinstance(target, ast.Name) and target.id in FACTS:
            # Adjacent string literals are one constant to the parser; anything else is no literal and a fault.
            facts[target.id] = ast.literal_eval(statement.value)
    return facts
