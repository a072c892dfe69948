"""The sections of a recipe whose keys depend on what is named in them: data, task, optimizer with schedule.

Each has a base (`section_bases.py`) with the keys that all have. The typed keywords of the named class add
their own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, ValidationError, create_model
from pydantic_core import InitErrorDetails, PydanticCustomError

from zoo import registry
from zoo.errors import InputError, Problem
from zoo.field_types import Section, strict_type
from zoo.recipe.section_bases import BASES
from zoo.registry import Description, Registry

LENGTH_FACTORS = (1, 2, 4)
"""The lengths of evaluation by default, as multiples of the trained length."""


def by_name(section: str) -> Any:
    """The field type of a section of `BASES`: its base with the keys of what is named in it."""
    base = BASES[section]

    def choose(value: Any) -> Section:
        if isinstance(value, base):
            return value
        if not isinstance(value, dict):
            base.model_validate(value)  # raises that it is no mapping
        problems = [
            InitErrorDetails(type=_error(text), loc=(key,), input=value)
            for key, text in _wrong_names(section, value)
        ]
        if problems:
            raise ValidationError.from_exception_data(section, problems)
        return named_section_class(section, value).model_validate(value)

    return Annotated[base, PlainValidator(choose), PlainSerializer(_dump)]


def _error(text: str) -> PydanticCustomError | str:
    return PydanticCustomError("unknown_name", "{text}", {"text": text}) if text else "missing"


def _dump(section: Section) -> dict[str, Any]:
    return section.model_dump(mode="json")


def _registries(section: str) -> tuple[tuple[str, Registry], ...]:
    """The keys of a section that hold a name, and what they name."""
    return {
        "data": (("name", registry.datasets),),
        "task": (("name", registry.tasks),),
        "optimizer": (("name", registry.optimizers), ("schedule", registry.schedules)),
    }.get(section, ())


@functools.lru_cache(maxsize=64)
def _evaluate_class(base: type[Section], protocols: tuple[Description, ...]) -> type[Section]:
    """`base` with the options of protocols from outside the zoo."""
    fields = {name: field for one in protocols for name, field in _option_fields(base, one).items()}
    return create_model(base.__name__, __base__=base, __doc__=base.__doc__, __module__=__name__, **fields)


def _wrong_names(section: str, value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys whose names are not known, with what is wrong; an empty text where one is missing."""
    for key, kind in _registries(section):
        name = value.get(key, BASES[section].model_fields[key].get_default())
        if not isinstance(name, str):
            missing = key not in value
            yield key, "" if missing else f"must be the name of {kind.article} {kind.kind}"
        elif name not in kind.all():
            yield key, kind.unknown(name)


def named_section_class(section: str, value: Any) -> type[Section] | None:
    """The model of a section of `BASES` that has this value; None where it names what is not registered."""
    base, registries = BASES[section], _registries(section)
    if not registries:
        foreign = tuple(one for one in registry.protocols.all().values() if one.options)
        return _evaluate_class(base, foreign) if foreign else base
    if not isinstance(value, dict) or any(_wrong_names(section, value)):
        return None
    names = [(kind, value.get(key, base.model_fields[key].get_default())) for key, kind in registries]
    return config_class(base, *(kind.describe(name) for kind, name in names))


@functools.lru_cache(maxsize=512)
def config_class(base: type[Section], *named: Description) -> type[Section]:
    """`base` with the options of what is named: by the first under `name`, by others as further keys.

    Raises:
        InputError: an option has no default that can be read and is not required.
    """
    name = base.model_fields["name"]
    field = Field(... if name.is_required() else name.default, description=name.description)
    fields: dict[str, Any] = {"name": (Literal[named[0].name], field)}
    for description in named:
        fields |= _option_fields(base, description)
    return create_model(
        f"{named[0].class_name}Config", __base__=base, __doc__=named[0].summary, __module__=__name__, **fields
    )


def _option_fields(base: type[Section], description: Description) -> dict[str, Any]:
    """The options of a class as fields, those apart that the base has already."""
    help_of = option_help(description.docstring)
    fields = {}
    for option in description.options:
        if option.name in base.model_fields:
            continue
        if option.default is registry.UNREAD:
            message = f"{option.name}: write its default out; the file is read before it is run"
            raise InputError(Problem(message, where=description.where))
        default = ... if option.default is registry.REQUIRED else option.default
        field = Field(default, description=help_of.get(option.name))
        fields[option.name] = (strict_type(option.annotation), field)
    return fields


def option_help(docstring: str) -> dict[str, str]:
    """What the `Args:` of a docstring say of each option."""
    _, _, arguments = docstring.partition("\nArgs:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n {6,}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def construct(kind: Registry, name: str, section: Section, *arguments: Any) -> Any:
    """An instance of a registered class, given the options that its section of a recipe has.

    Raises:
        InputError: its file cannot be imported, or its constructor refuses the options with ValueError.
    """
    options = {option.name: getattr(section, option.name) for option in kind.describe(name).options}
    cls = kind.load(name)
    try:
        return cls(*arguments, **options)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{kind.kind} {name!r}: {error}") from error


def usual_task(data: Any, model_kind: Any) -> str | None:
    """The task that a dataset and a kind of model suggest; None where there is none."""
    dataset = registry.datasets.all().get(data) if isinstance(data, str) else None
    for name, task in registry.tasks.all().items():
        if dataset is not None and dataset.gives == task.takes and model_kind in task.kinds:
            return name
    return None
