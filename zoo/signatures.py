"""Options and class attributes, read from the source of a class without running it.

The command line reports a wrong option in well under a second, so it cannot import the libraries (torch,
lightning) that the classes stand on. Their source has all that is needed: names, annotations and defaults.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType

from zoo.errors import InputError, Problem
from zoo.files import read_text

MAX_BYTES = 1 << 20
"""Largest source file of a plugin."""

Classes = Mapping[str, ast.ClassDef]


class _Required:
    """The default of an option that has none."""

    _one: typing.ClassVar[_Required | None] = None

    def __new__(cls) -> _Required:
        cls._one = cls._one or super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


class _Unread:
    """The default of an option whose value only running the code would tell."""

    def __repr__(self) -> str:
        return "UNREAD"


UNREAD = _Unread()

_TYPES: dict[str, object] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "None": None,
    "Any": typing.Any,
    "Literal": typing.Literal,
    "Optional": typing.Optional,
    "Union": typing.Union,
    "List": list,
    "Dict": dict,
    "Tuple": tuple,
}


@dataclass(frozen=True)
class Option:
    """One keyword of a constructor.

    `annotation` is a typing object (`typing.Any` where the source's cannot be understood); `default` is
    `REQUIRED` when there is none and `UNREAD` when it is not a literal.
    """

    name: str
    annotation: object
    default: object = REQUIRED


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


def options_of_class(cls: type) -> tuple[Option, ...]:
    """The keyword options of a class that exists, as `options_of` reads them from its source."""
    try:
        hints = typing.get_type_hints(cls.__init__, include_extras=True)
    except (NameError, TypeError):  # an annotation that only a type checker can follow
        hints = {}
    return tuple(
        Option(
            parameter.name,
            _as_read(hints.get(parameter.name, typing.Any)),
            REQUIRED if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in inspect.signature(cls.__init__).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
        or (parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is not parameter.empty)
    )


def _as_read(annotation: object) -> object:
    """An annotation as reading its source gives it: with `WRAPPED` for an encoding."""
    if isinstance(annotation, type) and any(one.__qualname__ == "Encoding" for one in annotation.__mro__):
        return WRAPPED
    if typing.get_origin(annotation) is typing.Annotated:
        return annotation
    before = typing.get_args(annotation)
    after = tuple(map(_as_read, before))
    if after == before:
        return annotation
    origin = typing.get_origin(annotation)
    return functools.reduce(operator.or_, after) if origin in (typing.Union, UnionType) else origin[after]


def options_of(
    class_node: ast.ClassDef, names: Mapping[str, object] | None = None
) -> tuple[Option, ...] | None:
    """The keyword options of a class: what its `__init__` takes by keyword only, or with a default.

    `names` adds to the names that an annotation may use. None when the class itself has no `__init__`.
    """
    init = _method(class_node, "__init__")
    if init is None:
        return None
    known = {**_TYPES, **(names or {})}
    arguments = init.args
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = positional[len(positional) - len(arguments.defaults) :] if arguments.defaults else []
    pairs = [*zip(with_default, arguments.defaults, strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return tuple(
        Option(argument.arg, _annotation(argument.annotation, known), _default(default))
        for argument, default in pairs
        if argument not in arguments.posonlyargs
    )


def read_signature(
    source: str, class_name: str, names: Mapping[str, object] | None = None
) -> tuple[Option, ...] | None:
    """`options_of` the class with that name in a module's source; None when there is no such class."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return options_of(node, names)
    return None


def _method(class_node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    for node in class_node.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None


def _default(node: ast.expr | None) -> object:
    if node is None:
        return REQUIRED
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNREAD


def _annotation(node: ast.expr | None, known: Mapping[str, object]) -> object:
    if node is None:
        return typing.Any
    try:
        return _evaluate(node, known)
    except (LookupError, TypeError, ValueError, SyntaxError):
        return typing.Any


def _evaluate(node: ast.expr, known: Mapping[str, object]) -> object:
    """The typing object that an annotation means. Only names in `known` are looked up; nothing is called."""
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str(text)):  # a forward reference
            return _evaluate(ast.parse(text, mode="eval").body, known)
        case ast.Name(id=name):
            return known[name]
        case ast.Attribute(attr=name):  # typing.Literal
            return known[name]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([_evaluate(left, known), _evaluate(right, known)])
        case ast.Subscript(value=head, slice=inside):
            generic = _evaluate(head, known)
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            if generic is typing.Literal:
                return typing.Literal[tuple(ast.literal_eval(part) for part in parts)]
            arguments = [... if _is_ellipsis(part) else _evaluate(part, known) for part in parts]
            if generic in (typing.Union, typing.Optional):
                return _union(arguments if generic is typing.Union else [*arguments, None])
            return generic[tuple(arguments)]
    raise ValueError(f"not an annotation that can be read: {ast.unparse(node)}")


def _union(members: list[object]) -> object:
    # Any takes everything already: a union with it would only lose that.
    if any(member is typing.Any for member in members):
        return typing.Any
    return functools.reduce(operator.or_, (type(None) if member is None else member for member in members))


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
