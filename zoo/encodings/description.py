"""What an encoding says of itself: read from its source, not run, or from the class where that exists.

Both ways give the same `Description`; reading needs no torch.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING

from zoo.errors import InputError, Problem
from zoo.files import read_text
from zoo.signatures import REQUIRED, Option, options_of

if TYPE_CHECKING:
    from zoo.encodings.base import Encoding

MAX_BYTES = 1 << 20
"""Of a plugin's source."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What an encoding may be called: its name stands in commands, files, tables and pages."""

FACTS = {
    "paper": "",
    "family": "",
    "decoder": True,
    "encoder": True,
    "relative": False,
    "extrapolates": "no",
    "distance_only": False,
    "per_layer": False,
    "after_training": (),
    "replaces": (),
}
"""The class attributes by which an encoding says what it is, with their defaults."""

Classes = Mapping[str, ast.ClassDef]


class WRAPPED:
    """The annotation of an option that holds another encoding. In source it is written `Encoding`."""


def holds_wrapped(annotation: object) -> bool:
    """Whether an option of this type holds another encoding, or several."""
    return annotation is WRAPPED or any(map(holds_wrapped, typing.get_args(annotation)))


def holds_several(annotation: object) -> bool:
    """Whether an option of this type may hold a list of encodings."""
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        return any(map(holds_several, typing.get_args(annotation)))
    return annotation is not WRAPPED and holds_wrapped(annotation)


@dataclass(frozen=True)
class Description:
    """What an encoding says of itself."""

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
    after_training: tuple[str, ...]
    replaces: tuple[str, ...]
    options: tuple[Option, ...]
    class_name: str
    file: Path
    line: int
    module: str | None = None
    """The module to import it by; None for a loose file."""
    package: str | None = None
    """Name and version of the installed package that brings it; None for the zoo's own and loose files."""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def builtin(self) -> bool:
        """Whether it is one of the zoo's own."""
        return self.module is not None and self.package is None


def read_classes(file: Path) -> dict[str, ast.ClassDef]:
    """The classes of a Python file by the names they have there; nothing in it is run.

    Raises:
        InputError: no such file, or a syntax error in it.
    """
    try:
        tree = ast.parse(read_text(file, MAX_BYTES))
    except InputError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # The last two are how the parser tells of nesting without end.
        line = getattr(error, "lineno", None)
        raise InputError(f"{file}:{line or 1}: not Python: {getattr(error, 'msg', error)}") from error
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def read_descriptions(file: Path, package: Classes, module: str | None = None) -> list[Description]:
    """The encodings that a Python file registers.

    `package` holds the zoo's own classes, from which those of the file may derive.

    Raises:
        InputError: no such file, a syntax error in it, or a fact that is no literal.
    """
    classes = read_classes(file)
    named = [(_registered_name(node), node) for node in classes.values()]
    wrong = [
        Problem(fault_of_name(name), where=f"{file}:{node.lineno}")
        for name, node in named
        if name is not None and fault_of_name(name)
    ]
    if wrong:
        raise InputError(wrong)
    return [_read(name, node, classes, package, file, module) for name, node in named if name is not None]


def fault_of_name(name: str) -> str | None:
    """Why an encoding cannot have this name; None where it can."""
    if NAME.fullmatch(name):
        return None
    return (
        f"no name for an encoding: {name[:80]!r}; it holds letters, digits and . _ - only, begins with a "
        f"letter or digit, and has at most 64"
    )


def describe_class(name: str, cls: type[Encoding]) -> Description:
    """The description of a class that exists, from the class."""
    file, line = place(cls)
    options = [
        Option(
            parameter.name,
            _as_read(_hints(cls).get(parameter.name, typing.Any)),
            REQUIRED if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in inspect.signature(cls.__init__).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
        or (parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is not parameter.empty)
    ]
    return Description(
        name=name,
        summary=_summary(inspect.cleandoc(cls.__doc__ or "")),
        options=tuple(options),
        class_name=cls.__name__,
        file=file,
        line=line,
        **{fact: getattr(cls, fact, default) for fact, default in FACTS.items()},
    )


def place(cls: type) -> tuple[Path, int]:
    """File and line of a class; in an interactive session, which has no file, the module's name and 1."""
    try:
        file = Path(inspect.getsourcefile(cls) or "").resolve()
        lines, first = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return Path(f"<{cls.__module__}>"), 1
    # The decorators stand above the line that names the class.
    return file, first + next(i for i, line in enumerate(lines) if line.lstrip().startswith("class "))


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


def _read(
    name: str, node: ast.ClassDef, classes: Classes, package: Classes, file: Path, module: str | None
) -> Description:
    facts = dict(FACTS)
    options: tuple[Option, ...] = ()
    # From the farthest ancestor down, so that the nearest word counts.
    for ancestor in reversed(_lineage(node, classes, package)):
        facts.update(_facts(ancestor, file))
        own = options_of(ancestor, {"Encoding": WRAPPED})
        options = options if own is None else own
    return Description(
        name=name,
        summary=_summary(ast.get_docstring(node) or ""),
        options=options,
        class_name=node.name,
        file=file,
        line=node.lineno,
        module=module,
        **facts,
    )


def _summary(docstring: str) -> str:
    return docstring.split("\n\n")[0].replace("\n", " ")


def _lineage(node: ast.ClassDef, classes: Classes, package: Classes) -> list[ast.ClassDef]:
    """The class and those of its ancestors that stand in the same file or in the zoo."""
    lineage = [node]
    for base in node.bases:
        if isinstance(base, ast.Name) and classes.get(base.id, node) is not node:
            lineage += _lineage(classes[base.id], classes, package)
            continue
        base_name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        parent = package.get(base_name, node)
        if parent is not node:
            lineage += _lineage(parent, package, package)
    return lineage


def _facts(node: ast.ClassDef, file: Path) -> dict[str, object]:
    facts: dict[str, object] = {}
    for statement in node.body:
        for name, value in _assigned(statement):
            if name not in FACTS:
                continue
            try:
                facts[name] = ast.literal_eval(value)
            except ValueError as error:
                message = f"`{name}` must be written out as a literal: the file is read before it is run"
                raise InputError(Problem(message, where=f"{file}:{statement.lineno}")) from error
    return facts


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement assigns, and what: `a = 1`, `a: int = 1`, `a = b = 1`, `a, b = 1, 2`."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield from _paired(statement.target, statement.value)
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from _paired(target, statement.value)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        side_by_side = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        for index, part in enumerate(target.elts):
            yield from _paired(part, value.elts[index] if side_by_side else value)


def _hints(cls: type[Encoding]) -> dict[str, object]:
    try:
        return typing.get_type_hints(cls.__init__)
    except (NameError, TypeError):  # an annotation that only a type checker can follow
        return {}


def _as_read(annotation: object) -> object:
    """An annotation as reading its source gives it: with `WRAPPED` for an encoding."""
    from zoo.encodings.base import Encoding

    if isinstance(annotation, type) and issubclass(annotation, Encoding):
        return WRAPPED
    before = typing.get_args(annotation)
    after = tuple(map(_as_read, before))
    if after == before:
        return annotation
    origin = typing.get_origin(annotation)
    return functools.reduce(operator.or_, after) if origin in (typing.Union, UnionType) else origin[after]
