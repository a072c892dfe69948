"""The options of a class, read from its source without running it.

The command line reports a wrong option in well under a second, so it cannot import the libraries (torch,
lightning) that the classes stand on. Their source has all that is needed: names, annotations and defaults.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import operator
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType

import pydantic

from zoo import fields


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
    """The keyword options of a class that exists, as they are read from its source."""
    options: tuple[Option, ...] = ()
    for ancestor in cls.__mro__:
        # Of what is neither here nor the zoo's the source is not read either.
        if "__init__" not in vars(ancestor) or ancestor.__module__.split(".")[0] not in _read_from(cls):
            continue
        parameters = inspect.signature(ancestor.__init__).parameters.values()
        options = with_inherited(_options_of_init(ancestor), options)
        if all(one.kind is not one.VAR_KEYWORD for one in parameters):
            break
    return options


def with_inherited(inherited: tuple[Option, ...], own: tuple[Option, ...]) -> tuple[Option, ...]:
    """The options of a class whose `__init__` takes `**more`: its own, and those of what it derives from."""
    names = {option.name for option in own}
    return (*own, *(option for option in inherited if option.name not in names))


def _read_from(cls: type) -> set[str]:
    return {"zoo", cls.__module__.split(".")[0]}


def _options_of_init(cls: type) -> tuple[Option, ...]:
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
    init = init_of(class_node)
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


def init_of(class_node: ast.ClassDef) -> ast.FunctionDef | None:
    """The constructor that a class itself has."""
    found = (one for one in class_node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    return next(found, None)


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
    **{name: getattr(fields, name) for name in fields.OPTION_TYPES},
}
"""What an annotation may use."""


def _annotation(node: ast.expr | None, known: Mapping[str, object]) -> object:
    """The typing object that an annotation means; `typing.Any` where it cannot be understood."""
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
            if generic is typing.Annotated:
                return typing.Annotated[_evaluate(parts[0], known), *map(_field, parts[1:])]
            if generic is typing.Literal:
                return typing.Literal[tuple(ast.literal_eval(part) for part in parts)]
            arguments = [... if _is_ellipsis(part) else _evaluate(part, known) for part in parts]
            if generic in (typing.Union, typing.Optional):
                return _union(arguments if generic is typing.Union else [*arguments, None])
            return generic[tuple(arguments)]
    raise ValueError(f"not an annotation that can be read: {ast.unparse(node)}")


def _field(node: ast.expr) -> object:
    """The `Field(gt=0, ...)` of an `Annotated`: pydantic's, with literal keywords."""
    match node:
        case ast.Call(func=ast.Name(id="Field"), args=[], keywords=keywords):
            return pydantic.Field(**{keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords})
    raise ValueError(f"not a field that can be read: {ast.unparse(node)}")


def _union(members: list[object]) -> object:
    # Any takes everything already: a union with it would only lose that.
    if any(member is typing.Any for member in members):
        return typing.Any
    return functools.reduce(operator.or_, (type(None) if member is None else member for member in members))


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
