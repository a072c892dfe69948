"""An encoding can be built, and its class attributes, docstring and options are declared correctly."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Iterator

from zoo.contract.law import BUILDS, Outcome, failed, law, only, passed
from zoo.contract.subject import Subject, alone, first_kind, listed, plain
from zoo.encodings.base import Encoding
from zoo.errors import InputError

FAMILIES = ("absolute", "position ids", "rotary", "bias", "content", "contextual", "weights", "schedule")


@law(BUILDS, "It can be built, for one layer and for a model.", needs=())
def can_be_built(subject: Subject) -> Iterator[Outcome]:
    model = subject.model()
    layers = model.num_layers
    for slot in model.encoding.slots:
        if len(set(map(id, slot))) != (layers if slot[0].per_layer else 1):
            yield failed(f"per_layer is {slot[0].per_layer}, and {layers} layers have {len(slot)} instances")
    learned = sum(p.numel() for p in model.encoding.parameters())
    yield passed(f"{learned:,} parameters in {layers} layers of width {subject.size().d_model}")


@law(
    "its description is complete",
    "The docstring begins with one sentence and describes every option, and the code reads it; family, paper "
    "and the kinds of model that it is for are given.",
    plain,
    first_kind,
    needs=(),
)
def description_is_complete(subject: Subject) -> Iterator[Outcome]:
    (description,) = subject.descriptions
    docstring = description.docstring
    first, *rest = docstring.splitlines() or [""]
    if not first.endswith(".") or (rest and rest[0] != ""):
        yield failed("the docstring does not begin with one sentence in a line of its own")
    if description.family not in FAMILIES:
        yield failed(f"family {description.family!r} is none of {', '.join(FAMILIES)}")
    if not (description.decoder or description.encoder):
        yield failed("it is for neither decoder nor encoder")
    # A plugin may leave these out, which is noted.
    lacks = []
    if not any(address in description.paper for address in ("arXiv:", "https://")):
        lacks.append(
            "its paper has no number of arXiv or address" if description.paper else "no paper is named"
        )
    for option in description.options:
        values = [value for value in typing.get_args(option.annotation) if isinstance(value, str)]
        text = docstring + description.help.get(option.name, "")
        missing = [value for value in values if f"`{value}`" not in text]
        if option.annotation is typing.Any:
            lacks.append(f"option {option.name} has no type: any value is taken")
        if option.name not in description.help:
            lacks.append(f"option {option.name} is not described")
        elif missing:
            lacks.append(f"option {option.name}: the docstring does not describe {', '.join(missing)}")
        if not _is_read(description.cls, option.name):
            yield failed(f"option {option.name} is declared and never read", description.where)
    note = "; ".join(lacks)
    if note and description.builtin:
        yield failed(note)
    yield Outcome(True, f"options described: {len(description.options)}", note=note)


def _is_read(cls: type, option: str) -> bool:
    """Whether the class's code reads an option, or the attribute of the instance that holds it."""
    own = cls.__mro__[: cls.__mro__.index(Encoding)]
    trees = [ast.parse(textwrap.dedent(inspect.getsource(one))) for one in own]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    kept_in = {}
    for n in nodes:
        for target in n.targets if isinstance(n, ast.Assign) else ():
            several = isinstance(target, ast.Tuple) and isinstance(n.value, ast.Tuple)
            parts = (target.elts, n.value.elts) if several else ([target], [n.value])
            kept_in |= {
                id(value): one.attr
                for one, value in zip(*parts, strict=False)
                if isinstance(one, ast.Attribute)
            }
    reads = [n for n in nodes if isinstance(n, ast.Name) and n.id == option and isinstance(n.ctx, ast.Load)]
    return any(id(n) not in kept_in or kept_in[id(n)] in attributes for n in reads)


@law(
    "a length policy is an option",
    'With `extrapolates = "policy"`, one option value refuses sequences beyond the trained length and '
    "another accepts them; otherwise none refuses them.",
    plain,
    only(
        "depends on the wrapped encoding",
        lambda subject: not any(one.wrapping for one in subject.descriptions),
    ),
    first_kind,
    needs=(),
)
def a_policy_is_an_option(subject: Subject) -> Iterator[Outcome]:
    (description,) = subject.descriptions
    changes = [{}, *({option.name: value} for option in description.options for value in listed(option))]
    limits = set()
    for change in changes:
        try:
            options = {"name": description.name, **change}
            model = Subject(options, subject.kind, config=subject.config).model(length=8)
        except InputError:
            continue  # a value that needs another option
        limits.add(model.encoding.max_length)
    if description.extrapolates == "policy":
        right = {None, 8} <= limits
    else:
        right = all(limit is None or limit > 8 for limit in limits)
    yield Outcome(right, f"{description.extrapolates}; limits when trained at 8: {sorted(limits, key=str)}")


@law(
    "after_training options change no parameter",
    "Changing an option listed in `after_training` leaves the name and shape of every parameter as they "
    "were.",
    alone,
    only(
        "it names no option that may change after training",
        lambda subject: any(one.after_training for one in subject.descriptions),
    ),
    first_kind,
    needs=(),
)
def after_training(subject: Subject) -> Iterator[Outcome]:
    (description,) = subject.descriptions
    options = {option.name: option for option in description.options}
    own = {"name": subject.spec} if isinstance(subject.spec, str) else subject.spec
    before, tried = subject.model(), []
    for name in description.after_training:
        if name not in options:
            yield failed(f"after_training names {name}, which {description.name!r} does not take")
        default = options[name].default
        # A number has no list of values: try twice the default.
        doubled = [2 * default] if type(default) in (int, float) else []
        for value in listed(options[name]) or doubled:
            try:
                after = Subject({**own, name: value}, subject.kind, config=subject.config).model(seed=1)
            except InputError:
                continue  # needs another option
            # Raises where a name or a shape differs.
            after.load_state_dict(before.state_dict())
            tried.append(name)
    yield passed(f"tried {', '.join(dict.fromkeys(tried))}" if tried else "none has values to try")
