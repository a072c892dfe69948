"""Sections whose keys depend on a name in them: data, task, optimizer, evaluate, and the encoding.

Each has a base with the keys that all have. The typed keywords of the named class add their own.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from zoo import registry
from zoo.errors import InputError
from zoo.fields import Affects, Count, CountOrFraction, Number, Positive, Section, Text, strict_type
from zoo.recipe.error_messages import explain_validation_error
from zoo.recipe.located_tree import KeyPath, describe_value
from zoo.registry import Description, Registry


class DataConfig(Section):
    """The keys of every dataset."""

    name: Text
    """The dataset."""
    sequence_length: Positive
    """Training length, in tokens."""
    batch_size: Positive
    """Sequences per optimizer step over all devices; devices and accumulation divide it."""
    workers: Annotated[Count, Affects(None, after_training=True)] = 0
    """Loader processes per device."""


class TaskConfig(Section):
    """The keys of every task."""

    name: Text
    """The task."""


class OptimizerConfig(Section):
    """The keys of every optimizer and schedule."""

    name: Text = "adamw"
    """The optimizer."""
    lr: Annotated[Number, Field(gt=0)]
    """Highest learning rate, reached at the end of the warm-up."""
    warmup_steps: Count = 100
    """Optimizer steps in which the learning rate rises linearly from zero."""
    schedule: Text = "cosine"
    """How the learning rate changes after the warm-up."""


class EncodingConfig(Section):
    """The keys of every encoding."""

    name: Text


MAX_TOKENS = 262144
"""Tokens scored at each length where `evaluate.max_tokens` is null."""


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str | dict) else value


class EvaluateConfig(Section):
    """How the trained model is evaluated."""

    lengths: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = None
    """Lengths in tokens. null: 1, 2 and 4 times data.sequence_length. Protocol fixed_targets scores the
    documents that hold the longest of them."""
    protocols: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    """Evaluation protocols. null: the first that the task knows."""
    split: Literal["valid", "test"] | None = None
    """Split that is scored. null: valid, by protocols accuracy and prompts test."""
    start_token: Literal["auto", "none"] = "auto"
    """auto: windows and prompts of an imported model begin with the token that its tokenizer puts before a
    text, if any. none: they begin with the text."""
    max_tokens: Positive | None = None
    """Tokens of text scored at each length; no length may be longer. null: 262144, and at the end of `fit` no
    more than 16384 or, if that is more, a quarter of the trained tokens."""
    samples: Positive = 1024
    """Generated sequences scored at each length."""
    batch_tokens: Positive = 16384
    """Tokens in one evaluation batch."""
    max_seconds: Annotated[Number, Field(gt=0)] | None = None
    """Seconds that a length may take; then it is stopped and left out with a note. null: as long as it
    needs."""
    stride: CountOrFraction = 0.5
    """Protocol sliding: tokens between the beginnings of two windows, or a fraction of the window."""
    targets: Positive = 200
    """Protocol fixed_targets: tokens scored at the end of each document; at most the shortest length."""
    bins_per_octave: Positive = 2
    """Protocol per_position: bins of positions to every doubling of the context."""
    questions: Annotated[
        tuple[Text | dict[str, Any], ...], Field(min_length=1), BeforeValidator(_several)
    ] = (
        "needle",
        "variable_tracking",
        "common_words",
    )
    """Protocol prompts: its questions, as names of datasets, or mappings of such a name and its options."""


BASES: dict[str, type[Section]] = {
    "data": DataConfig,
    "task": TaskConfig,
    "optimizer": OptimizerConfig,
    "evaluate": EvaluateConfig,
}
NAMES: dict[str, dict[str, Registry]] = {
    "data": {"name": registry.datasets},
    "task": {"name": registry.tasks},
    "optimizer": {"name": registry.optimizers, "schedule": registry.schedules},
    "evaluate": {},
}
"""The keys of each section that hold a name, and the registry of that name."""


def by_name(section: str) -> Any:
    """The field type of a section of `BASES`: its base with the options of the classes named in it."""

    def choose(value: Any) -> Section:
        base = BASES[section]
        if isinstance(value, base):
            return value
        if not isinstance(value, dict):
            base.model_validate(value)  # raises: not a mapping
        wrong = {(key,): text for key, text in _wrong_names(section, value)}
        if wrong:
            raise _errors(section, value, wrong)
        return named_section_class(section, value).model_validate(value)

    return Annotated[BASES[section], PlainValidator(choose), dump_by_class]


dump_by_class = PlainSerializer(lambda section: section.model_dump(mode="json"))
"""Dumps all keys of a section whose annotation is the base alone."""


def named_section_class(section: str, value: Any) -> type[Section] | None:
    """The model of a section of `BASES` that has this value; None where a name in it is not registered."""
    base = BASES[section]
    if section == "evaluate":
        # The options of protocols from outside the zoo: those of its own are in the base.
        protocols = map(registry.protocols.describe, registry.protocols.names())
        return with_options(base, *(one for one in protocols if one.options))
    if not isinstance(value, dict) or any(_wrong_names(section, value)):
        return None
    named = [kind.describe(_name_in(section, key, value)) for key, kind in NAMES[section].items()]
    return config_class(base, *named)


def _name_in(section: str, key: str, value: dict[str, Any]) -> Any:
    return value.get(key, BASES[section].model_fields[key].get_default())


def _wrong_names(section: str, value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys whose names are missing or unknown, each with a message."""
    for key, kind in NAMES[section].items():
        name = _name_in(section, key, value)
        if not isinstance(name, str) or name not in kind.all():
            yield key, _no_name(kind, name) if key in value or isinstance(name, str) else "missing"


def _no_name(kind: Registry, name: Any) -> str:
    if isinstance(name, str):
        return kind.unknown(name)
    return f"must be the name of {kind.article} {kind.kind}, got {describe_value(name)}"


def _errors(title: str, value: Any, faults: dict[KeyPath, str]) -> ValidationError:
    """The pydantic error with these messages, by their paths below a value."""
    details = (
        ("missing" if text == "missing" else PydanticCustomError("explained", "{text}", {"text": text}), path)
        for path, text in faults.items()
    )
    return ValidationError.from_exception_data(
        title, [InitErrorDetails(type=kind, loc=path, input=value) for kind, path in details]
    )


@functools.lru_cache(maxsize=512)
def config_class(base: type[Section], *named: Description) -> type[Section]:
    """`base` with the options of the named classes; the first is the value of `name`."""
    name = base.model_fields["name"]
    field = Field(... if name.is_required() else name.default, description=name.description)
    return create_model(
        f"{named[0].class_name}Config",
        __base__=with_options(base, *named),
        __doc__=named[0].summary,
        __module__=__name__,
        name=(Literal[named[0].name], field),
    )


@functools.lru_cache(maxsize=512)
def with_options(base: type[Section], *named: Description) -> type[Section]:
    """`base` with the options of classes as fields, those apart that the base has already."""
    fields: dict[str, Any] = {}
    for description in named:
        for option in description.options:
            if option.name not in base.model_fields:
                wraps = registry.holds_wrapped(option.annotation)
                default = ... if option.default is registry.REQUIRED else option.default
                help_text = description.help.get(option.name)
                field = Field(default, description=help_text, validate_default=wraps)
                fields[option.name] = (_wrapped(option) if wraps else strict_type(option.annotation), field)
    if not fields:
        return base
    return create_model(base.__name__, __base__=base, __doc__=base.__doc__, __module__=__name__, **fields)


def resolve_encoding(spec: Any) -> Any:
    """An encoding with every option given: a mapping, or a list of mappings, of plain values.

    Raises:
        ValidationError: it is not a name, a mapping of a name and its options, or a list of such.
    """
    return _SEVERAL.validate_python(list(spec)) if isinstance(spec, list | tuple) else _resolve_one(spec)


def _resolve_one(spec: Any) -> dict[str, Any]:
    given = spec if isinstance(spec, dict) else {"name": spec}
    name = given.get("name")
    if not isinstance(name, str) or name not in registry.encodings.all():
        raise _errors("encoding", spec, {("name",): _no_name(registry.encodings, name)})
    config = config_class(EncodingConfig, registry.encodings.describe(name))
    try:
        return config.model_validate(given).model_dump(mode="json")
    except ValidationError as error:
        # Only here are the valid keys known.
        raise _errors(name, spec, explain_validation_error(error, given, {(): config.model_fields})) from None


_SEVERAL = TypeAdapter(Annotated[list[Annotated[Any, PlainValidator(_resolve_one)]], Field(min_length=1)])


def _wrapped(option: registry.Option) -> Any:
    """The field type of an option that holds another encoding, or several."""
    annotation = option.annotation
    is_union = typing.get_origin(annotation) in (typing.Union, UnionType)
    members = typing.get_args(annotation) if is_union else (annotation,)

    def resolve(value: Any) -> Any:
        if value is None and (NoneType in members or option.default is None):
            return None
        if isinstance(value, list) and not registry.holds_several(annotation):
            raise ValueError("must be one encoding, not a list")
        if not isinstance(value, list) and not any(map(registry.is_encoding, members)):
            raise ValueError("must be a list of encodings, not one")
        return resolve_encoding(value)

    return Annotated[Any, PlainValidator(resolve)]


def construct(kind: Registry, name: str, section: Section, *arguments: Any) -> Any:
    """An instance of a registered class with the options that its section of a recipe has.

    Raises:
        InputError: its constructor refuses the options with ValueError.
    """
    about = kind.describe(name)
    options = {option.name: getattr(section, option.name) for option in about.options}
    try:
        return about.cls(*arguments, **options)
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
