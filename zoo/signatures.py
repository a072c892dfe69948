"""The options of a class, read from its source without running it.

The command line reports a wrong option in well under a second, so it cannot import the libraries (torch,
lightning) that the classes stand on. Their source has all that is needed: names, annotations and defaults.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import json
import operator
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType

import pydantic

from zoo import field_types


class REQUIRED:
    """The default of an option that has none."""


class UNREAD:
    """The default of an option whose value is known only when the code runs."""


class WRAPPED:
    """The annotation of an option that holds another encoding. In source it is written `Encoding`."""


@dataclass(frozen=True)
class Option:
    """One keyword of a constructor.

    `annotation` is a typing object (`typing.Any` where the source's cannot be understood); `default` is
    `REQUIRED` when there is none and `UNREAD` when it is not a literal.
    """

    name: str
    annotation: object
    default: object = REQUIRED


def holds_wrapped(annotation: object) -> bool:
    """Whether an option of this type holds another encoding, or several."""
    return annotation is WRAPPED or any(map(holds_wrapped, typing.get_args(annotation)))


def holds_several(annotation: object) -> bool:
    """Whether an option of this type may hold a list of encodings."""
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        return any(map(holds_several, typing.get_args(annotation)))
    return annotation is not WRAPPED and holds_wrapped(annotation)


def annotation_text(annotation: object) -> str:
    """A type in the words of a recipe's author: `number`, `whole number`, `official | geometric`."""
    words = {
        int: "whole number",
        float: "number",
        bool: "true | false",
        str: "text",
        type(None): "null",
        None: "null",
        dict: "mapping",
        WRAPPED: "encoding",
        typing.Any: "any",
    }
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in words:
        return words[annotation]
    if origin is typing.Annotated:
        return annotation_text(arguments[0])
    if origin is typing.Literal:
        return " | ".join(map(value_text, arguments))
    if origin in (list, tuple):
        return f"list of {', '.join(annotation_text(part) for part in arguments if part is not ...)}"
    if arguments and origin is not dict:
        return " | ".join(map(annotation_text, arguments))
    return getattr(annotation, "__name__", str(annotation))


def value_text(value: typing.Any) -> str:
    """A default or a choice as a recipe gives it; text without quotes."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


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
    found = (one for one in class_node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    init = next(found, None)
    if init is None:
        return None
    known = {**_NAMES, **(names or {})}
    arguments, defaults = init.args, init.args.defaults
    pairs = [*zip(arguments.args[len(arguments.args) - len(defaults) :], defaults, strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return tuple(
        Option(argument.arg, _annotation(argument.annotation, known), _default(default))
        for argument, default in pairs
    )


def read_signature(
    source: str, class_name: str, names: Mapping[str, object] | None = None
) -> tuple[Option, ...] | None:
    """`options_of` the class with that name in a module's source; None when there is no such class."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return options_of(node, names)
    return None


def _default(node: ast.expr | None) -> object:
    if node is None:
        return REQUIRED
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNREAD


_NAMES: dict[str, object] = {
    **{one.__name__: one for one in (int, float, bool, str, list, tuple, dict)},
    **{name: getattr(typing, name) for name in ("Annotated", "Any", "Literal", "Optional", "Union")},
    **{"List": list, "Dict": dict, "Tuple": tuple, "Field": pydantic.Field},
    **{name: getattr(field_types, name) for name in field_types.OPTION_TYPES},
}
"""What an annotation may use."""
_PARTS = (ast.Name, ast.Constant, ast.Subscript, ast.Tuple, ast.BinOp, ast.BitOr, ast.UnaryOp,
          ast.USub, ast.Call, ast.keyword, ast.Load)  # fmt: skip


class _Plain(ast.NodeTransformer):
    """Types by their names alone: `typing.Literal` is `Literal`, and a text is the annotation in it."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Name(node.attr, ast.Load())

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            return self.visit(ast.parse(node.value, mode="eval").body)
        if node.value not in (None, ...):
            raise ValueError(f"{node.value} is no type")
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)
        if ast.unparse(node.value) != "Literal":
            node.slice = self.visit(node.slice)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return node


def _annotation(node: ast.expr | None, known: Mapping[str, object]) -> object:
    """The typing object that an annotation means; `typing.Any` where it cannot be understood.

    It is evaluated where it is made of types alone: of the names in `known`, with no call but of `Field`.
    """
    if node is None:
        return typing.Any
    try:
        tree = ast.fix_missing_locations(ast.Expression(_Plain().visit(copy.deepcopy(node))))
        parts = [*ast.walk(tree.body)]
        called = {ast.unparse(part.func) for part in parts if isinstance(part, ast.Call)}
        of_types = all(isinstance(part, _PARTS) for part in parts) and called <= {"Field"}
        if of_types and not isinstance(tree.body, ast.Tuple | ast.Call):
            return eval(compile(tree, "<annotation>", "eval"), {"__builtins__": {}}, dict(known))
    except Exception:
        pass
    return typing.Any
