"""What must hold between the keys of a recipe.

A rule asks for the values it needs and yields the faults it finds. Where a value is missing or wrong already,
the rule is left out: every problem of a recipe is reported once, and all together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticUndefined

from zoo import registry
from zoo.errors import InputError
from zoo.field_types import float_to_int
from zoo.recipe.error_messages import nearest
from zoo.recipe.located_tree import KeyPath, dotted
from zoo.recipe.options import encodings_in
from zoo.recipe.schema import PRECISION_ALIASES, Recipe, section_class

FSDP_PRECISIONS = ("32-true", "bf16-mixed", "bf16-true", "16-true")
Fault = tuple[str | KeyPath, str]
Rule = Callable[["Values"], Iterator[Fault]]


@dataclass(frozen=True)
class Broken:
    """A broken rule: the message, and every key that the rule looked at."""

    message: str
    involved: tuple[KeyPath, ...]


class _Unknown(Exception):
    """A rule asked for a value that is missing or wrong."""


class Values:
    """The values of a recipe that are known to be right, by dotted key, defaults included."""

    def __init__(self, values: dict[str, Any], wrong: Iterable[KeyPath]):
        self.values = values
        self.wrong = set(wrong)
        self.asked: list[KeyPath] = []

    def __getitem__(self, key: str) -> Any:
        path = tuple(key.split("."))
        self.asked.append(path)
        if any(path[: len(bad)] == bad or bad[: len(path)] == path for bad in self.wrong):
            raise _Unknown
        section, *rest = path
        value = self.values.get(section)
        if not rest:
            return Recipe.model_fields[section].get_default() if value is None else value
        inside = value if isinstance(value, dict) else {}
        if rest[0] in inside:
            return float_to_int(inside[rest[0]])
        owner = section_class(section, inside)
        default = (
            owner.model_fields[rest[0]].get_default() if owner and rest[0] in owner.model_fields else None
        )
        if default is PydanticUndefined or owner is None:
            raise _Unknown
        return default


def broken_rules(values: Values, rules: Iterable[Rule] | None = None) -> dict[KeyPath, Broken]:
    """The rules (by default `RULES`) that are broken, by the key path that is to blame."""
    broken: dict[KeyPath, Broken] = {}
    for rule in RULES if rules is None else rules:
        values.asked.clear()
        try:
            for key, message in rule(values):
                path = tuple(key.split(".")) if isinstance(key, str) else key
                broken.setdefault(path, Broken(message, tuple(values.asked)))
        except _Unknown:
            continue
    return broken


def heads_divide_width(recipe: Values) -> Iterator[Fault]:
    heads, width = recipe["model.num_heads"], recipe["model.d_model"]
    if width % heads:
        yield "model.num_heads", f"{heads} heads do not divide d_model {width}"


def groups_divide_heads(recipe: Values) -> Iterator[Fault]:
    groups, heads = recipe["model.num_kv_heads"], recipe["model.num_heads"]
    if groups and heads % groups:
        yield "model.num_kv_heads", f"{groups} key and value heads do not divide {heads} heads"


def every_window_has_a_layer(recipe: Values) -> Iterator[Fault]:
    windows, layers = recipe["model.window"], recipe["model.num_layers"]
    if isinstance(windows, list | tuple) and len(windows) > layers:
        yield "model.window", f"a pattern of {len(windows)} in {layers} layers: the last are never met"


def batch_divides_evenly(recipe: Values) -> Iterator[Fault]:
    devices = number_of_devices(recipe["trainer.devices"])
    if devices is None:
        return  # checked when the run starts
    nodes, accumulate = recipe["trainer.num_nodes"], recipe["trainer.accumulate_grad_batches"]
    fault = batch_fault(recipe["data.batch_size"], devices, nodes, accumulate)
    if fault:
        yield "data.batch_size", fault


def number_of_devices(devices: Any) -> int | None:
    """How many devices of each machine a `trainer.devices` means; None for auto and -1, which mean all."""
    if isinstance(devices, list | tuple):
        return len(devices) or None
    if isinstance(devices, str) and "," in devices:
        return len([part for part in devices.split(",") if part.strip()]) or None
    if isinstance(devices, str) and devices.strip().isdecimal():
        devices = int(devices)
    return devices if isinstance(devices, int) and devices > 0 else None


def batch_fault(batch: int, devices: int, nodes: int, accumulate: int) -> str | None:
    """What is wrong with a global batch that is divided so; None where each gets as much as the others."""
    parts = devices * nodes * accumulate
    if batch % parts == 0:
        return None
    return (
        f"a batch of {batch} cannot be divided over {parts} (devices {devices} x num_nodes {nodes} x "
        f"accumulate_grad_batches {accumulate}); take a multiple of {parts}"
    )


def an_epoch_ends_with_a_step(recipe: Values) -> Iterator[Fault]:
    accumulate, limit = recipe["trainer.accumulate_grad_batches"], recipe["trainer.limit_train_batches"]
    # As it was given: 1 is one batch, and 1.0 all of them.
    given = recipe.values["trainer"].get("limit_train_batches")
    all_of_them = isinstance(given, float) and given == 1
    if accumulate > 1 and limit is not None and not all_of_them and limit % accumulate:
        yield (
            "trainer.limit_train_batches",
            f"{limit} may end an epoch amid a step: take a multiple of accumulate_grad_batches {accumulate}",
        )


def precision_can_be_sharded(recipe: Values) -> Iterator[Fault]:
    precision = recipe["trainer.precision"]
    precision = PRECISION_ALIASES.get(precision, precision)
    if recipe["trainer.strategy"] == "fsdp" and precision not in FSDP_PRECISIONS:
        yield "trainer.precision", f"{precision} does not go with fsdp; it takes {', '.join(FSDP_PRECISIONS)}"


def precision_runs_on_device(recipe: Values) -> Iterator[Fault]:
    precision, accelerator = recipe["trainer.precision"], recipe["trainer.accelerator"]
    fault = cpu_precision_fault(precision) if accelerator == "cpu" else None
    if fault:
        yield "trainer.precision", fault


def cpu_precision_fault(precision: Any) -> str | None:
    """What is wrong with training in a precision on a CPU; None where that is possible."""
    # Lightning computes in bf16 there, with a warning.
    if PRECISION_ALIASES.get(precision, precision) != "16-mixed":
        return None
    return "16-mixed needs a GPU: on a CPU it would be computed in bf16-mixed; choose bf16-mixed or 32-true"


def devices_are_some(recipe: Values) -> Iterator[Fault]:
    devices = recipe["trainer.devices"]
    if devices == 0 or devices == [] or (isinstance(devices, int) and devices < -1):
        yield "trainer.devices", "must be a number above 0, a list of indices, -1 for all, or auto"


def encoding_fits_kind(recipe: Values) -> Iterator[Fault]:
    kind = recipe["model.kind"]
    for path, name in encodings_in(recipe["model.encoding"], ("model", "encoding")):
        about = registry.encodings.describe(name)
        if not (about.decoder if kind == "decoder" else about.encoder):
            other = "encoder" if kind == "decoder" else "decoder"
            yield path, f"encoding {name!r} is not for {_a(kind)}, only for {_a(other)}"


def encoding_can_be_trained(recipe: Values) -> Iterator[Fault]:
    for path, name in encodings_in(recipe["model.encoding"], ("model", "encoding")):
        trained = registry.encodings.describe(name).replaces
        if trained:
            yield (
                path,
                f"{name} is for evaluation: train with {' or '.join(trained)}, then "
                f"`zoo evaluate RUN --set {dotted(path)}={name}`",
            )


def task_fits_data(recipe: Values) -> Iterator[Fault]:
    task, data = recipe["task.name"], recipe["data.name"]
    takes = registry.tasks.describe(task).takes
    if takes != registry.datasets.describe(data).gives:
        fitting = [name for name, dataset in registry.datasets.all().items() if dataset.gives == takes]
        yield "task", f"task {task!r} cannot be learned from {data!r}; it needs {' or '.join(fitting)}"


def task_fits_kind(recipe: Values) -> Iterator[Fault]:
    task, kind = recipe["task.name"], recipe["model.kind"]
    kinds = registry.tasks.describe(task).kinds
    if kind not in kinds:
        yield "task", f"task {task!r} is not for {_a(kind)}, only for {' or '.join(map(_a, kinds))}"


def protocols_fit_task(recipe: Values) -> Iterator[Fault]:
    task = recipe["task.name"]
    for index, protocol in enumerate(recipe["evaluate.protocols"] or ()):
        fault = no_protocol(protocol, task)
        if fault:
            yield ("evaluate", "protocols", index), fault


def no_protocol(name: str, task: str) -> str | None:
    """What is wrong with asking for a protocol of this name; None where the task knows it, or is a plugin's
    that was not read."""
    about = registry.tasks.all().get(task)
    if about is None:
        return None
    needs = "text" if about.takes == "text" else "examples"
    others = [one for one in registry.protocols.all().values() if not one.builtin]
    known = [*about.protocols, *(one.name for one in others if one.needs == needs)]
    if name in known:
        return None
    if name in registry.protocols.broken:
        return registry.protocols.unknown(name)
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(known)}"
    return f"no protocol {name!r} for task {task!r}; {hint}"


def stride_leaves_no_gap(recipe: Values) -> Iterator[Fault]:
    if "sliding" not in (recipe["evaluate.protocols"] or ()):
        return
    fault = stride_gap(recipe["evaluate.stride"], recipe["evaluate.lengths"] or ())
    if fault:
        yield "evaluate.stride", fault


def stride_gap(stride: int | float, lengths: Sequence[int]) -> str | None:
    """What is wrong with a stride (tokens, or a fraction of the window) for windows of these lengths."""
    shortest = min(lengths, default=None)
    # A fraction is at most 1, and no window is shorter.
    if shortest is None or stride <= shortest:
        return None
    return (
        f"a stride of {stride} tokens would leave tokens out between windows of {shortest}: give at most "
        f"{shortest}, or a fraction of the window such as 0.5"
    )


def longest_length_is_scored(recipe: Values) -> Iterator[Fault]:
    if registry.datasets.describe(recipe["data.name"]).gives != "text":
        return
    longest, tokens = max(recipe["evaluate.lengths"] or [0]), recipe["evaluate.max_tokens"]
    if tokens < longest:
        yield "evaluate.max_tokens", f"{tokens} tokens are less than one sequence of length {longest}"


def examples_fit_lengths(recipe: Values) -> Iterator[Fault]:
    name = recipe["data.name"]
    about = registry.datasets.describe(name)
    if about.imports_torch or not about.builtin:
        return  # reading a recipe runs nobody's code; `fit` checks it
    try:
        dataset = registry.datasets.load(name)(**{o.name: recipe[f"data.{o.name}"] for o in about.options})
    except InputError as error:
        yield from ((problem.key or "data", problem.message) for problem in error.problems)
        return
    least = dataset.shortest
    lengths = {"data.sequence_length": recipe["data.sequence_length"]}
    for index, length in enumerate(recipe["evaluate.lengths"] or ()):
        lengths["evaluate", "lengths", index] = length
    for key, length in lengths.items():
        if length < least:
            few = "1 token is" if length == 1 else f"{length} tokens are"
            yield key, f"{few} too few for {name}, which needs at least {least}"


def kernel_runs_on_device(recipe: Values) -> Iterator[Fault]:
    if recipe["model.kernel"] == "flex" and recipe["trainer.accelerator"] == "cpu":
        yield "model.kernel", "the flex kernel does not train on a CPU; choose auto, sdpa or reference"


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


RULES: tuple[Rule, ...] = (
    heads_divide_width, groups_divide_heads, every_window_has_a_layer, batch_divides_evenly,
    an_epoch_ends_with_a_step, precision_can_be_sharded, devices_are_some, encoding_fits_kind,
    task_fits_data, task_fits_kind, protocols_fit_task, longest_length_is_scored, stride_leaves_no_gap,
    examples_fit_lengths, kernel_runs_on_device,
)  # fmt: skip

FOR_TRAINING: tuple[Rule, ...] = (encoding_can_be_trained, precision_runs_on_device)
"""What must hold besides where the recipe is to be trained, and need not for a model that was."""
