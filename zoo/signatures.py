"""Reading a class's keyword options from its source, without running it.

The command line must tell the user about a wrong option in well under a second, so it cannot import the
libraries (torch, lightning) that the classes stand on. Their source says all that is needed: names,
annotations and defaults.
"""

from __future__ import annotations

import ast
import functools
import operator
import typing
from collections.abc import Mapping
from dataclasses import dataclass


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


def class_named(source: str, class_name: str) -> ast.ClassDef | None:
    """The top-level class of that name in a module's source, or None.

    Raises:
        SyntaxError: the source is not Python.
    """
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return node
    return None


def read_signature(
    source: str, class_name: str, names: Mapping[str, object] | None = None
) -> tuple[Option, ...] | None:
    """`options_of` the class with that name in a module's source; None when there is no such class."""
    node = class_named(source, class_name)
    return None if node is None else options_of(node, names)


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
