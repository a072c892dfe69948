"""An encoding can be built, and its class attributes, docstring and options are declared correctly."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from typing import Any

import torch

from zoo import registry
from zoo.contract.law import BUILDS, Finding, alone, broken, first_kind, first_line, held, law, plain
from zoo.contract.small_model import KINDS, Subject
from zoo.contract.variants import listed
from zoo.errors import InputError
from zoo.recipe import resolve

FAMILIES = ("absolute", "position ids", "rotary", "bias", "content", "contextual", "schedule")


@law(BUILDS, "It can be built, for one layer and for a model.", needs=())
def can_be_built(subject: Subject) -> Finding:
    model = subject.model(num_layers=3)
    learned = sum(p.numel() for p in model.encoding.parameters())
    per_layer = [slot[0].per_layer for slot in model.encoding.slots]
    for layer_wise, slot in zip(per_layer, model.encoding.slots, strict=True):
        if len(set(map(id, slot))) != (3 if layer_wise else 1):
            return broken(f"per_layer is {layer_wise}, and 3 layers have {len(slot)} instances")
    return held(f"{learned:,} parameters in 3 layers of width 48")


@law(
    "its description is complete",
    "The docstring begins with one sentence and describes every option; family and paper are given.",
    plain,
    first_kind,
    needs=(),
)
def description_is_complete(subject: Subject) -> Finding:
    (description,) = subject.descriptions
    cls = registry.encodings.load(description.name)
    docstring = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    first, *rest = docstring.splitlines() or [""]
    # Plugins may leave some out, which is noted; what the list of encodings shows is required.
    faults, lacks = [], []
    if not first.endswith(".") or (rest and rest[0] != ""):
        faults.append("the docstring does not begin with one sentence in a line of its own")
    if description.summary != first:
        faults.append("its summary is not the docstring's first line")
    if description.family not in FAMILIES:
        faults.append(f"family {description.family!r} is none of {', '.join(FAMILIES)}")
    if not (description.decoder or description.encoder):
        faults.append("it is for neither decoder nor encoder")
    if "arXiv:" not in description.paper:
        lacks.append("no paper on arXiv is named" if description.paper else "no paper is named")
    for option in description.options:
        if f"\n    {option.name}: " not in docstring:
            lacks.append(f"option {option.name} is not described")
            continue
        values = [value for value in typing.get_args(option.annotation) if isinstance(value, str)]
        missing = [value for value in values if f"`{value}`" not in docstring]
        if missing:
            lacks.append(f"option {option.name}: the docstring does not describe {', '.join(missing)}")
    if subject.strict:
        faults, lacks = [*faults, *lacks], []
    note = "; ".join(lacks)
    return Finding(
        not faults, "; ".join(faults) or f"options described: {len(description.options)}", note=note
    )


@law(
    "its source and its class agree",
    "What is read from the file without running it equals what the class has.",
    plain,
    first_kind,
    needs=(),
)
def source_and_class_agree(subject: Subject) -> Finding:
    (read,) = subject.descriptions
    actual = registry.encodings.describe_class(read.name, registry.encodings.load(read.name))
    differing = []
    for fact in (*registry.encodings.facts, "summary"):
        before, after = getattr(read, fact), getattr(actual, fact)
        if before != after:
            differing.append(f"{fact}: {before!r} in the file, {after!r} in the class")
    for one, other in zip(read.options, actual.options, strict=True):
        if dataclasses.replace(one, annotation=None) != dataclasses.replace(other, annotation=None):
            differing.append(
                f"option {one.name}: {one.default!r} in the file, {other.default!r} in the class"
            )
    return broken("; ".join(differing)) if differing else held()


@law(
    "recipes accept only the declared model kinds",
    "A recipe with it is refused for a decoder or an encoder if, and only if, it is not declared for that "
    "kind.",
    alone,
    first_kind,
    needs=(),
)
def accepted_kinds(subject: Subject) -> Finding:
    if not subject.kinds:
        return broken("it is for neither decoder nor encoder")
    outcomes = []
    for kind in KINDS:
        refusal = _refusal(subject, kind)
        if kind in subject.kinds:
            if refusal is not None and not subject.only_evaluates:
                return broken(f"a recipe with it in the {kind} is refused: {refusal}")
            outcomes.append(f"{kind}: accepted")
        elif refusal is None or f"not for {'an' if kind == 'encoder' else 'a'} {kind}" not in refusal:
            return broken(
                f"it is not for the {kind}, but a recipe with it "
                + ("is accepted" if refusal is None else f"says: {refusal}")
            )
        else:
            outcomes.append(f"{kind}: refused")
    return held(", ".join(outcomes))


def _refusal(subject: Subject, kind: str) -> str | None:
    recipe: dict[str, Any] = {
        "name": "one",
        "model": {"kind": kind, "encoding": subject.spec, "d_model": 48, "num_layers": 2, "num_heads": 6},
        "data": {"name": "max_index", "sequence_length": 16, "batch_size": 4},
        "optimizer": {"lr": 1e-3},
        "trainer": {"max_steps": 4},
    }
    if kind == "decoder":
        recipe["data"]["name"] = "sample"
    try:
        resolve(recipe)
    except InputError as error:
        return first_line(error).removeprefix("InputError: ")
    return None


def wraps_none(subject: Subject) -> str | None:
    options = [option for one in subject.descriptions for option in one.options]
    wraps = any(registry.holds_wrapped(option.annotation) for option in options)
    return "depends on what it wraps" if wraps else None


@law(
    "a length policy is an option",
    'With `extrapolates = "policy"`, one option value refuses sequences beyond the trained length and '
    "another accepts them; otherwise none refuses them.",
    plain,
    wraps_none,
    first_kind,
    needs=(),
)
def a_policy_is_an_option(subject: Subject) -> Finding:
    (description,) = subject.descriptions
    own = {"name": subject.spec} if isinstance(subject.spec, str) else subject.spec
    specs = [own] + [{**own, o.name: v} for o in description.options for v in listed(o)]
    limits = set()
    for spec in specs:
        try:
            limits.add(Subject(spec, subject.kind).model(length=8).encoding.max_length)
        except InputError:
            continue  # a value that needs another option
    policy = description.extrapolates == "policy"
    open_ended = all(limit is None or limit > 8 for limit in limits)
    right = {None, 8} <= limits if policy else open_ended
    return Finding(right, f"{description.extrapolates}; limits when trained at 8: {sorted(limits, key=str)}")


def has_options_for_later(subject: Subject) -> str | None:
    options = any(one.after_training for one in subject.descriptions)
    return None if options else "it names no option that may change after training"


@law(
    "after_training options change no parameter",
    "Changing an option listed in `after_training` leaves the name and shape of every parameter as they "
    "were.",
    alone,
    has_options_for_later,
    first_kind,
    needs=(),
)
def after_training(subject: Subject) -> Finding:
    (description,) = subject.descriptions
    options = {option.name: option for option in description.options}
    unknown = [name for name in description.after_training if name not in options]
    if unknown:
        return broken(f"after_training names {', '.join(unknown)}, which {description.name!r} does not take")
    own = {"name": subject.spec} if isinstance(subject.spec, str) else subject.spec
    before, tried = subject.model(), []
    for name in description.after_training:
        default = options[name].default
        # A number has no list of values: try twice the default.
        doubled = (2 * default,) if type(default) in (int, float) else ()
        for value in listed(options[name]) or doubled:
            try:
                after = Subject({**own, name: value}, subject.kind, config=subject.config).model(seed=1)
            except InputError:
                continue  # needs another option
            if _shapes(after) != _shapes(before):
                return broken(f"{name}: {value!r} changes the parameters")
            after.load_state_dict(before.state_dict())
            tried.append(name)
    return held(f"tried {', '.join(dict.fromkeys(tried))}" if tried else "none has values to try")


def _shapes(model: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in model.state_dict().items()}
