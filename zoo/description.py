"""What a registered class says of itself: read from its source, or taken from the class where that exists.

Both ways give the same `Description`. Reading runs nothing, and needs no torch.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem
from zoo.files import read_text
from zoo.signatures import WRAPPED, Option, init_of, options_of, options_of_class, with_inherited

MAX_BYTES = 1 << 20
"""Largest source file of a plugin."""

Classes = Mapping[str, ast.ClassDef]


@dataclass(frozen=True, eq=False)
class Description:
    """What the source of a class says. Facts of its kind are attributes: `description.family`."""

    kind: str
    name: str
    docstring: str
    facts: Mapping[str, Any]
    options: tuple[Option, ...]
    help: Mapping[str, str]
    """What the docstrings of the class and its ancestors say of each option."""
    class_name: str
    file: Path
    line: int
    module: str | None = None
    """The module to import it by; None for a loose file."""
    package: str | None = None
    """Name and version of the installed package that brings it; None for the zoo's own and loose files."""

    def __getattr__(self, fact: str) -> Any:
        if fact.startswith("_") or fact == "facts" or fact not in self.facts:
            raise AttributeError(fact)
        return self.facts[fact]

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, in one line."""
        return self.docstring.split("\n\n")[0].replace("\n", " ")

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def builtin(self) -> bool:
        """Whether it is one of the zoo's own."""
        return self.module is not None and self.package is None


def read_descriptions(
    file: Path, kind: str, facts: Mapping[str, Any], zoo_classes: Classes
) -> list[Description]:
    """The classes that a Python file registers as one of a kind.

    Args:
        kind: as in `register.KIND`.
        facts: the class attributes that are read, with their defaults.
        zoo_classes: the zoo's own, from which those of the file may derive.

    Raises:
        InputError: no such file, a syntax error in it, or a fact that is not a literal.
    """
    classes = read_classes(file)
    found = []
    for node in classes.values():
        name = _registered_name(node, kind)
        if name is None:
            continue
        values, options, texts = dict(facts), (), {}
        # From the farthest ancestor down: the nearest value counts.
        for ancestor in reversed(lineage(node, classes, zoo_classes)):
            values.update(read_attributes(ancestor, facts, file))
            own, init = options_of(ancestor, {"Encoding": WRAPPED}), init_of(ancestor)
            if own is not None:
                # `**more` stands for the options of the class that it derives from.
                options = with_inherited(options, own) if init.args.kwarg else own
            docstring = ast.get_docstring(ancestor) or ""
            texts |= _option_help(docstring)
        found.append(Description(kind, name, docstring, values, options, texts, node.name, file, node.lineno))
    return found


def _option_help(docstring: str) -> dict[str, str]:
    """What the `Args:` of a docstring, or the `Options:` of an encoding's, say of each option."""
    _, *section = re.split(r"\n(?:Args|Options):\n", docstring, maxsplit=1)
    # It ends at the first line that is not indented.
    arguments = re.split(r"^\S", section[0], maxsplit=1, flags=re.MULTILINE)[0] if section else ""
    found = re.findall(r"^    (\w+): (.*(?:\n {6,}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def _registered_name(node: ast.ClassDef, kind: str) -> str | None:
    """The name under which a class is registered as one of a kind: by `register` or `register.KIND`."""
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=called, args=[ast.Constant(value=str(name)), *_]):
                path = ast.unparse(called).split(".")
                if (path[-1] == "register" and kind == "encoding") or path[-2:] == ["register", kind]:
                    return name
    return None


def read_classes(file: Path) -> dict[str, ast.ClassDef]:
    """The classes of a Python file by their names; nothing in the file is run.

    Raises:
        InputError: no such file, or a syntax error in it.
    """
    try:
        tree = ast.parse(read_text(file, MAX_BYTES))
    except InputError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # The parser raises the last two for code that is nested too deeply.
        line = getattr(error, "lineno", None)
        raise InputError(f"{file}:{line or 1}: not Python: {getattr(error, 'msg', error)}") from error
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def lineage(node: ast.ClassDef, classes: Classes, package: Classes) -> list[ast.ClassDef]:
    """A class and those of its ancestors that are in the same file (`classes`) or in the zoo (`package`)."""
    found = [node]
    for base in node.bases:
        if isinstance(base, ast.Name) and classes.get(base.id, node) is not node:
            found += lineage(classes[base.id], classes, package)
            continue
        base_name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        parent = package.get(base_name, node)
        if parent is not node:
            found += lineage(parent, package, package)
    return found


def read_attributes(node: ast.ClassDef, names: Mapping[str, object], file: Path) -> dict[str, object]:
    """The values of those class attributes that are in `names`.

    Raises:
        InputError: one of them is not a literal.
    """
    found: dict[str, object] = {}
    for statement in node.body:
        for name, value in _assigned(statement):
            if name not in names:
                continue
            try:
                found[name] = ast.literal_eval(value)
            except ValueError as error:
                message = f"`{name}` must be written out as a literal: the file is read before it is run"
                raise InputError(Problem(message, where=f"{file}:{statement.lineno}")) from error
    return found


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement assigns, and what: `a = 1`, `a: int = 1`, `a = b = 1`, `a, b = 1, 2`."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets, value = [statement.target], statement.value
    elif isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    else:
        return
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple):
            values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
            yield from ((ast.unparse(one), own) for one, own in zip(target.elts, values, strict=False))


def describe_class(kind: str, name: str, cls: type, facts: Mapping[str, Any]) -> Description:
    """The description of a class that exists, from the class."""
    values = {fact: getattr(cls, fact, default) for fact, default in facts.items()}
    texts = {}
    for ancestor in reversed(cls.__mro__):
        docstring = inspect.cleandoc(ancestor.__dict__.get("__doc__") or "")
        texts |= _option_help(docstring)
    options = options_of_class(cls)
    return Description(kind, name, docstring, values, options, texts, cls.__name__, *class_location(cls))


def class_location(cls: type) -> tuple[Path, int]:
    """File and line of a class; in an interactive session, which has no file, the module's name and 1."""
    try:
        file = Path(inspect.getsourcefile(cls) or "").resolve()
        lines, first = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return Path(f"<{cls.__module__}>"), 1
    # The decorators stand above the line that names the class.
    return file, first + next(i for i, line in enumerate(lines) if line.lstrip().startswith("class "))
