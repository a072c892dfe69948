"""The two parts of a recipe whose keys other people's classes decide: the encoding, and Lightning's Trainer.

Both are checked against the signature of the class, read from its source.
"""

from __future__ import annotations

import functools
import importlib.util
import typing
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from zoo import registry
from zoo.errors import InputError
from zoo.field_types import strict_type
from zoo.recipe.error_messages import MANY, explain_validation_error, unknown_key
from zoo.recipe.located_tree import KeyPath, describe_value
from zoo.recipe.schema import TrainerConfig
from zoo.signatures import Option, read_signature

Faults = dict[KeyPath, str]

OWNED = {
    "logger": "the loggers are named under `logging`",
    "callbacks": "the zoo brings its own callbacks; checkpoints are set under `checkpoint`",
    "plugins": "encodings of your own go under the top-level `plugins`; Lightning's plugins are the zoo's",
    "default_root_dir": "the run folder is chosen by `fit --out DIR`",
    "max_epochs": "the length of a run is counted in steps; set `trainer.max_steps`",
    "use_distributed_sampler": "the zoo itself shares the data out over the devices",
    "reload_dataloaders_every_n_epochs": "resuming at the next batch needs loaders that stay the same",
    "enable_checkpointing": "a run always keeps checkpoints; set `checkpoint.every_n_steps`",
    "fast_dev_run": "it makes no run folder; set `trainer.max_steps` to a few steps",
    "barebones": "it makes no run folder; set `trainer.enable_progress_bar: false` for a quiet run",
    "model_registry": "it uploads checkpoints; a run writes into its folder and nowhere else",
    "overfit_batches": "it replaces the order of the data; set `trainer.limit_train_batches`",
}

# Types that Lightning takes and that cannot be written in a recipe.
_UNWRITABLE = ("Accelerator", "Strategy", "Profiler", "Logger", "Callback", "timedelta")


def check_encoding(spec: Any, path: KeyPath) -> tuple[Any, Faults]:
    """An encoding with every option given, and what is wrong with it by key path.

    `spec` is a name, a mapping of a name and its options, or a list of such. The result is a mapping, or a
    list of mappings, of plain values.
    """
    faults: Faults = {}
    return _encoding(spec, path, faults), faults


def encodings_in(spec: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Every encoding in a resolved one, the wrapped ones included: its key path and its name."""
    if isinstance(spec, list | tuple):
        for index, part in enumerate(spec):
            yield from encodings_in(part, (*path, index))
    elif isinstance(spec, dict) and "name" in spec:
        yield path, spec["name"]
        for option in registry.encodings.describe(spec["name"]).options:
            if registry.holds_wrapped(option.annotation):
                yield from encodings_in(spec.get(option.name), (*path, option.name))


def encoding_label(spec: Any) -> str:
    """A resolved encoding in a word: its name, with what it wraps or is combined with."""
    if isinstance(spec, list | tuple):
        return "+".join(map(encoding_label, spec))
    inside = [
        encoding_label(spec[option.name])
        for option in registry.encodings.describe(spec["name"]).options
        if registry.holds_wrapped(option.annotation) and spec.get(option.name) is not None
    ]
    return f"{spec['name']}({', '.join(inside)})" if inside else spec["name"]


def _encoding(spec: Any, path: KeyPath, faults: Faults) -> Any:
    if len(faults) > MANY:
        return None
    if isinstance(spec, list | tuple):
        if not spec:
            faults[path] = "an empty list; for no encoding at all write none"
        for index, part in enumerate(spec):
            if isinstance(part, list | tuple):
                faults[(*path, index)] = "a list within a list; here goes one encoding"
        return [_encoding(part, (*path, index), faults) for index, part in enumerate(spec)]
    name_path = path
    if isinstance(spec, dict):
        if "name" not in spec:
            faults[(*path, "name")] = "missing: which encoding the options belong to"
            return None
        name_path = (*path, "name")
    name = spec["name"] if isinstance(spec, dict) else spec
    if not isinstance(name, str):
        hint = "; for no encoding at all write none" if name is None else ""
        faults[name_path] = f"must be the name of an encoding, got {describe_value(name)}{hint}"
        return None
    try:
        options = registry.encodings.describe(name).options
    except InputError as error:
        faults[name_path] = "; ".join(problem.message for problem in error.problems)
        return None
    given = {key: value for key, value in spec.items() if key != "name"} if isinstance(spec, dict) else {}
    return {"name": name, **_options(name, options, given, path, faults)}


def _options(
    name: str, options: tuple[Option, ...], given: dict[str, Any], path: KeyPath, faults: Faults
) -> dict[str, Any]:
    resolved: dict[str, Any] = {}
    known = {option.name: option for option in options}
    for key in given.keys() - known.keys():
        hinted = known if len(faults) <= MANY else ()
        about = unknown_key((key,), hinted) if known else "unknown key; it has no options"
        faults[(*path, key)] = f"{about} (encoding {name!r})"
    for option in options:
        here = (*path, option.name)
        if option.name not in given:
            if option.default is registry.REQUIRED:
                faults[here] = f"missing; encoding {name!r} cannot do without"
            elif registry.holds_wrapped(option.annotation) and option.default is not None:
                resolved[option.name] = _encoding(option.default, here, faults)
            elif _plain(option.default):
                resolved[option.name] = _as_list(option.default)
        elif registry.holds_wrapped(option.annotation):
            value = given[option.name]
            if value is None and NoneType in typing.get_args(option.annotation):
                resolved[option.name] = None
            elif isinstance(value, list) and not registry.holds_several(option.annotation):
                faults[here] = f"encoding {name!r} takes one encoding here, not a list"
            elif not isinstance(value, list) and not _holds_one(option.annotation):
                faults[here] = f"encoding {name!r} takes a list of encodings here, not one"
            else:
                resolved[option.name] = _encoding(value, here, faults)
        else:
            resolved[option.name] = _value(option, given[option.name], here, faults)
    return resolved


def _holds_one(annotation: Any) -> bool:
    """Whether an option of this type may hold an encoding that stands by itself, in no list."""
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        return any(map(_holds_one, typing.get_args(annotation)))
    return annotation is registry.WRAPPED


def _value(option: Option, value: Any, path: KeyPath, faults: Faults) -> Any:
    adapter = _adapter(strict_type(option.annotation))
    try:
        return adapter.dump_python(adapter.validate_python(value), mode="json")
    except ValidationError as error:
        for below, message in explain_validation_error(error, value, {}).items():
            faults[(*path, *below)] = message
        return None


@functools.lru_cache(maxsize=256)
def _adapter(annotation: Any) -> TypeAdapter:
    return TypeAdapter(annotation)


def _plain(default: Any) -> bool:
    if isinstance(default, list | tuple):
        return all(map(_plain, default))
    if isinstance(default, dict):
        return all(map(_plain, default.values()))
    return default is None or isinstance(default, str | int | float | bool)


def _as_list(default: Any) -> Any:
    # What a recipe file gives back is a list: a resolved recipe must read as itself.
    return [_as_list(part) for part in default] if isinstance(default, list | tuple) else default


@functools.lru_cache(maxsize=1)
def trainer_options() -> dict[str, Option]:
    """The keywords of `lightning.pytorch.Trainer`, by name; Lightning is not imported.

    Raises:
        InputError: Lightning is not installed, or its Trainer is not where it used to be.
    """
    spec = importlib.util.find_spec("lightning")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("the package `lightning` is not installed: pip install lightning")
    source = Path(spec.submodule_search_locations[0]) / "pytorch" / "trainer" / "trainer.py"
    names = {name: typing.Never for name in _UNWRITABLE}
    names |= {"Iterable": list, "_LITERAL_WARN": typing.Literal["warn"], "_PATH": str}
    options = (
        read_signature(source.read_text(encoding="utf-8"), "Trainer", names) if source.is_file() else None
    )
    if options is None:
        raise InputError(f"no signature of lightning.pytorch.Trainer in {source}")
    return {option.name: option for option in options}


def check_trainer(section: dict[str, Any], path: KeyPath) -> tuple[dict[str, Any], Faults]:
    """The keys of `trainer` that only Lightning knows, checked against its signature; and what is wrong."""
    faults: Faults = {}
    own = TrainerConfig.model_fields
    flags = {key: value for key, value in section.items() if key not in own}
    if not flags:
        return {}, faults
    try:
        known = trainer_options()
    except InputError as error:
        return {}, {path: str(error)}
    allowed = sorted({*own, *known} - OWNED.keys())
    resolved = {}
    for key, value in flags.items():
        here = (*path, key)
        if key in OWNED:
            faults[here] = f"not the recipe's to set: {OWNED[key]}"
        elif key not in known:
            near = unknown_key((key,), allowed)
            faults[here] = (
                near if "did you mean" in near else "unknown key; lightning.pytorch.Trainer has none such"
            )
        else:
            resolved[key] = _value(known[key], value, here, faults)
    return resolved, faults
