"""Sections whose keys depend on a name in them: data, task, optimizer, evaluate, and the encoding.

Each has a base with the keys that all have. The typed keywords of the named class add their own.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Collection, Sequence
from types import UnionType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter, ValidationError, create_model

from zoo import registry
from zoo.errors import InputError, Problem, hint, shorten
from zoo.recipe.fields import Affects, Count, Flag, Number, Positive, Section, Text, strict_type
from zoo.recipe.tree import describe_value
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


class OptimizerConfig(Section):
    """The keys of every optimizer and schedule."""

    name: Text = "adamw"
    """The optimizer."""
    lr: Annotated[Number, Field(gt=0)]
    """Highest learning rate, reached at the end of the warm-up."""
    warmup_steps: Count = 100
    """Optimizer steps in which the learning rate rises linearly from zero."""
    schedule: Text = "cosine"
    """The change of the learning rate after the warm-up."""
    fused: Annotated[Flag | Literal["auto"], Affects("rounding")] = "auto"
    """Whether one kernel updates all weights. auto: where the optimizer has one, but not under 16-mixed."""


class NamedConfig(Section):
    """The keys of every task and encoding, and of a dataset in another key: questions, a corpus of a mix."""

    name: Text
    """Its name."""


MAX_TOKENS = 262144
"""Tokens scored at each length where `evaluate.max_tokens` is null."""


class DuringConfig(Section):
    """Scores at a few lengths while the model is trained, logged as `lengths/MEASURE/LENGTH`."""

    every_n_steps: Positive
    """Optimizer steps between two evaluations."""
    lengths: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = None
    """Lengths in tokens. null: evaluate.lengths."""
    max_tokens: Positive = 16384
    """Tokens of text scored at each length; never fewer than the longest length."""
    samples: Positive = 128
    """Generated sequences scored at each length."""


class EvaluateConfig(Section):
    """The evaluation of the trained model."""

    lengths: tuple[Positive, ...] | None = None
    """Lengths in tokens. null: 1, 2 and 4 times data.sequence_length. []: `fit` does not evaluate."""
    protocols: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    """Evaluation protocols. null: the first of the task."""
    split: Literal["valid", "test", "all"] | None = None
    """Split that is scored. all: every document of a text that the model was not trained on. null: all of a
    file or folder given by --data and of the text of an imported model, else the one that each protocol
    scores by default."""
    start_token: Literal["auto", "none"] = "auto"
    """auto: windows and prompts of an imported model begin with the token that its tokenizer puts before a
    text, if any. none: they begin with the text."""
    end_tokens: bool = True
    """Whether the token that ends a document is a target. It has a loss but no bytes, and so adds to bits per
    byte."""
    max_tokens: Positive | None = None
    """Tokens of text scored at each length; no length may be longer. null: 262144, and at the end of `fit` no
    more than 16384 or, if that is more, a quarter of the trained tokens."""
    max_tokens_per_document: Positive | None = None
    """Number of tokens at the beginning of each document that are scored, so that several count within
    evaluate.max_tokens; end tokens are then not targets. null: documents are whole."""
    samples: Positive = 1024
    """Generated sequences scored at each length."""
    batch_tokens: Positive = 16384
    """Tokens in one evaluation batch."""
    split_sequence: Flag | Literal["auto"] = "auto"
    """Whether the processes of `--devices` compute each sequence together, and not each its own sequences.
    auto: where there are fewer sequences of a length than processes."""
    during: DuringConfig | None = None
    """Evaluation in training, by the first of the protocols. null: none."""
    max_seconds: Annotated[Number, Field(gt=0)] | None = None
    """Time limit per length; a length over it is left out with a note. null: no limit."""


BASES: dict[str, type[Section]] = {
    "data": DataConfig,
    "task": NamedConfig,
    "optimizer": OptimizerConfig,
    "evaluate": EvaluateConfig,
}
NAMES: dict[str, dict[str, Registry]] = {
    "data": {"name": registry.datasets},
    "task": {"name": registry.tasks},
    "optimizer": {"name": registry.optimizers, "schedule": registry.schedules},
    "evaluate": {"protocols": registry.protocols},
}
"""The keys of each section that hold a name, or a list of names, and the registry of these."""


def section_model(section: str, value: Any, stored: bool = False) -> type[Section]:
    """The model of a section of `BASES` with this value: its base, and the options of the named classes.

    It takes any other key where a name is missing or not registered, and in a stored recipe in `evaluate`,
    which may have options of a protocol that is not registered.
    """
    base = BASES[section]
    if section == "evaluate":
        every = config_class(base, *(one for one in described(registry.protocols) if one.options))
        return any_keys(every) if stored else every
    if not isinstance(value, dict):
        return base
    named = [(kind, name_in(section, key, value)) for key, kind in NAMES[section].items()]
    if not all(isinstance(name, str) and name in kind.all() for kind, name in named):
        return any_keys(base)
    return config_class(base, *(kind.describe(name) for kind, name in named))


def described(kind: Registry) -> list[Description]:
    """All of a kind, by name."""
    return [kind.describe(name) for name in kind.names()]


def name_in(section: str, key: str, value: dict[str, Any]) -> Any:
    """The name at a key of a section; None where it is missing."""
    return value.get(key, BASES[section].model_fields[key].get_default())


@functools.cache
def any_keys(base: type[Section]) -> type[Section]:
    """`base` that takes any other key."""
    return create_model(base.__name__, __base__=base, __cls_kwargs__={"extra": "allow"})


@functools.lru_cache(maxsize=512)
def config_class(base: type[Section], *named: Description) -> type[Section]:
    """`base` with the options of the named classes; the first is the value of `name`, if `base` has one."""
    fields: dict[str, Any] = {}
    for description in named:
        for option in description.options:
            if option.name not in base.model_fields:
                wraps = option.wraps
                default = ... if option.default is registry.REQUIRED else option.default
                help_text = description.help.get(option.name)
                if help_text and "name" not in base.model_fields:
                    help_text = f"{description.kind.capitalize()} {description.name}: {help_text}"
                field = Field(default, description=help_text, validate_default=wraps)
                kind = _wrapped if wraps else strict_type
                annotation = option.annotation | None if wraps and default is None else option.annotation
                fields[option.name] = (kind(annotation), field)
                if not wraps and default is not ...:
                    _validate_default(description, option.name, kind(annotation), default)
    title, docstring = base.__name__, base.__doc__
    if name := base.model_fields.get("name"):
        title, docstring = f"{named[0].cls.__name__}Config", named[0].summary
        field = Field(... if name.is_required() else name.default, description=name.description)
        fields["name"] = (Literal[named[0].name], field)
    return create_model(title, __base__=base, __doc__=docstring, __module__=__name__, **fields)


def _validate_default(description: Description, option: str, annotation: Any, default: Any) -> None:
    try:
        TypeAdapter(annotation).validate_python(default)
    except ValidationError as error:
        message = f"option {option}: its type does not allow its default, {default!r}"
        raise InputError(Problem(message, where=description.where)) from error


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


# Encodings


def resolve_encoding(spec: Any) -> Any:
    """An encoding with every option given: a mapping, or a list of mappings, of plain values.

    Raises:
        ValidationError: it is not a name, a mapping of a name and its options, or a list of such.
    """
    return _ENCODING.validate_python(spec)


def _resolve_one(spec: Any) -> Any:
    given = spec if isinstance(spec, dict) else {"name": spec}
    name = given.get("name")
    if not isinstance(name, str):
        raise ValueError(f"must be the name of an encoding, got {describe_value(name)}")
    if name not in registry.encodings.all():
        raise ValueError(registry.encodings.unknown(name))
    config = config_class(NamedConfig, registry.encodings.describe(name))
    return config.model_validate(given).model_dump(mode="json")


_ONE = Annotated[Any, PlainValidator(_resolve_one)]
_ENCODING = TypeAdapter(_ONE | Annotated[list[_ONE], Field(min_length=1)])


def _wrapped(annotation: Any) -> Any:
    """The field type of an option that holds another encoding, or several."""
    if registry.is_encoding(annotation):
        return _ONE
    if not registry.holds_wrapped(annotation):
        return annotation
    members = tuple(map(_wrapped, typing.get_args(annotation)))
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        return typing.Union[members]  # noqa: UP007
    return Annotated[typing.get_origin(annotation)[members], Field(min_length=1)]


def dataset_section(spec: Any, known: Sequence[str], elsewhere: Collection[str] = ()) -> Section:
    """The options of a dataset that another key has as a name, or as a mapping of a name and options.

    Args:
        known: the names that the key may have.
        elsewhere: the options that are set elsewhere.

    Raises:
        ValueError: another name, or a wrong option.
    """
    given = spec if isinstance(spec, dict) else {"name": spec}
    name = given.get("name")
    if name not in known:
        raise ValueError(f"no such dataset: {shorten(repr(name), 100)}; {hint(str(name), known)}")
    config = config_class(NamedConfig, registry.datasets.describe(name))
    valid = [key for key in config.model_fields if key not in elsewhere]
    for key in (key for key in given if key not in valid):
        reason = "is set under `data`" if key in elsewhere else f"is unknown; {hint(key, valid)}"
        raise ValueError(f"key {key!r} of {name!r} {reason}")
    return config.model_validate(given)


def checked_by(section: Callable[[Any], Section]) -> AfterValidator:
    """Metadata of an option that holds such a dataset: it keeps the value as it was given."""
    return AfterValidator(lambda spec: (section(spec), spec)[1])
