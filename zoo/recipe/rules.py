"""Rules between the keys of a recipe.

A rule names the keys that it reads, and gets their values. Rules are checked once all values are valid.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from zoo import registry
from zoo.errors import InputError, hint
from zoo.launch.devices import batch_fault, cpu_precision_fault, number_of_devices
from zoo.recipe.encoding import ENCODING, encodings_in
from zoo.recipe.schema import Recipe
from zoo.recipe.sections import MAX_TOKENS, DataConfig, EvaluateConfig, construct
from zoo.recipe.tree import KeyPath, dotted

Fault = str | dict[KeyPath, str] | None
"""The error of the first of a rule's keys, or of others by their path; None where the rule holds."""


@dataclass(frozen=True)
class Rule:
    keys: tuple[KeyPath, ...]
    check: Callable[..., Fault]


RULES: list[Rule] = []
FOR_TRAINING: list[Rule] = []
"""Rules for recipes that are to be trained, besides."""


def rule(*keys: str, of: list[Rule] = RULES) -> Callable[[Callable[..., Fault]], Callable[..., Fault]]:
    """Decorator of a rule that gets the values of these keys, in their order."""

    def add(check: Callable[..., Fault]) -> Callable[..., Fault]:
        of.append(Rule(tuple(tuple(key.split(".")) for key in keys), check))
        return check

    return add


def broken_rules(recipe: Recipe, rules: Iterable[Rule]) -> dict[KeyPath, tuple[str, tuple[KeyPath, ...]]]:
    """The message of each broken rule, and the keys that it read, by the key path that is to blame."""
    broken: dict[KeyPath, tuple[str, tuple[KeyPath, ...]]] = {}
    for one in rules:
        fault = one.check(*(functools.reduce(getattr, key, recipe) for key in one.keys))
        faults = fault if isinstance(fault, dict) else {one.keys[0]: fault} if fault else {}
        for path, message in faults.items():
            broken.setdefault(path, (message, one.keys))
    return broken


@rule("optimizer.name")
def optimizer_takes_the_rate(name: str) -> Fault:
    about = registry.optimizers.describe(name)
    if "lr" not in [option.name for option in about.options]:
        return f"optimizer {name!r} ({about.where}) has no lr: its constructor must take `lr: float`"


@rule("model.num_heads", "model.d_model", "model.head_dim")
def heads_divide_width(heads: int, width: int, head_dim: int | None) -> Fault:
    return f"{heads} heads do not divide d_model {width}" if width % heads and head_dim is None else None


@rule("model.num_kv_heads", "model.num_heads")
def groups_divide_heads(groups: int | None, heads: int) -> Fault:
    if groups and heads % groups:
        return f"{groups} key and value heads do not divide {heads} heads"


@rule("model.first_norm", "model.norm_position")
def first_norm_is_of_an_input(first: bool, position: str) -> Fault:
    if not first and position not in ("pre", "both"):
        return f"norm_position {position} normalises no input of attention; leave the key out"


@rule("model.parallel_residual", "model.norm_position")
def parallel_sums_are_not_normalised(parallel: bool | str, position: str) -> Fault:
    if parallel and position == "post":
        return (
            "norm_position post normalises after attention, which a parallel feed-forward does not wait for"
        )


@rule("model.window", "model.num_layers")
def every_window_has_a_layer(windows: Any, layers: int) -> Fault:
    if isinstance(windows, tuple) and len(windows) > layers:
        unused = len(windows) - layers
        return f"pattern has {len(windows)} entries but num_layers is {layers}; the last {unused} are unused"


@rule("model.sink_tokens", "model.window", "model.kind")
def sinks_stand_before_a_window(tokens: int, windows: Any, kind: str) -> Fault:
    if tokens and kind != "decoder":
        return "only a decoder has sink tokens; leave the key out"
    if tokens and windows is None:
        return "sink tokens are those visible beyond a window; set model.window too"


@rule("data.batch_size", "trainer.devices", "trainer.num_nodes", "trainer.accumulate_grad_batches")
def batch_divides_evenly(batch: int, devices: Any, nodes: int, accumulate: int) -> Fault:
    number = number_of_devices(devices)
    # `auto` is checked when the run starts.
    return None if number is None else batch_fault(batch, number, nodes, accumulate)


@rule("trainer.precision", "trainer.accelerator", of=FOR_TRAINING)
def precision_runs_on_device(precision: str, accelerator: str) -> Fault:
    return cpu_precision_fault(precision) if accelerator == "cpu" else None


@rule("trainer.devices")
def devices_are_some(devices: Any) -> Fault:
    if devices in (0, []) or (isinstance(devices, int) and devices < -1):
        return "must be a number above 0, a list of indices, -1 for all, or auto"


@rule("model.encoding", "model.kind")
def encoding_fits_kind(encoding: Any, kind: str) -> Fault:
    return {
        path: f"encoding {about.name!r} is not for {_a(kind)}"
        for path, about in encodings_in(encoding, ENCODING)
        if not getattr(about, kind)
    }


@rule("model.encoding", of=FOR_TRAINING)
def encoding_can_be_trained(encoding: Any) -> Fault:
    return {
        path: f"{about.name} is for evaluation: train with {' or '.join(about.replaces)}, then "
        f"`zoo evaluate RUN --set {dotted(path)}={about.name}`"
        for path, about in encodings_in(encoding, ENCODING)
        if about.replaces
    }


@rule("task.name", "data.name")
def task_fits_data(task: str, data: str) -> Fault:
    takes = registry.tasks.describe(task).takes
    if takes == registry.datasets.describe(data).gives:
        return None
    fitting = [name for name, dataset in registry.datasets.all().items() if dataset.gives == takes]
    return {("task",): f"task {task!r} cannot be learned from {data!r}; it needs {' or '.join(fitting)}"}


@rule("task.name", "model.kind")
def task_fits_kind(task: str, kind: str) -> Fault:
    kinds = registry.tasks.describe(task).kinds
    if kind in kinds:
        return None
    return {("task",): f"task {task!r} is not for {_a(kind)}, only for {' or '.join(map(_a, kinds))}"}


@rule("evaluate.protocols", "task.name", "evaluate", "evaluate.lengths")
def protocols_fit(protocols: Sequence[str], task: str, evaluate: EvaluateConfig, lengths: Any) -> Fault:
    faults: dict[KeyPath, str] = {}
    for index, name in enumerate(protocols or ()):
        if fault := no_protocol(name, task):
            faults["evaluate", "protocols", index] = fault
            continue
        try:
            construct(registry.protocols, name, evaluate).validate(evaluate, lengths or ())
        except InputError as error:
            faults |= _by_path(error, ("evaluate", "protocols", index))
    return faults


def no_protocol(name: str, task: str) -> str | None:
    """The error of a protocol that a task does not have; None for a task that is not registered."""
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
    return f"no protocol {name!r} for task {task!r}; {hint(name, known)}"


@rule("evaluate.max_tokens", "evaluate.lengths", "data.name", "data.sequence_length")
def longest_length_is_scored(tokens: int | None, lengths: Sequence[int] | None, data: str, _: int) -> Fault:
    longest, tokens = max(lengths or [0]), tokens or MAX_TOKENS
    if registry.datasets.describe(data).gives == "text" and tokens < longest:
        return f"{tokens} tokens are less than one sequence of length {longest}"


@rule("data", "evaluate.lengths")
def data_fit_lengths(data: DataConfig, evaluated: Sequence[int] | None) -> Fault:
    try:
        dataset = construct(registry.datasets, data.name, data)
        dataset.validate(data)
    except InputError as error:
        return _by_path(error, ("data",))
    lengths = {("data", "sequence_length"): data.sequence_length}
    lengths |= {("evaluate", "lengths", index): length for index, length in enumerate(evaluated or ())}
    return {
        key: f"{length} is too short for {data.name}, which needs at least {dataset.shortest} tokens"
        for key, length in lengths.items()
        if length < dataset.shortest
    }


@rule("model.kernel", "trainer.accelerator")
def kernel_runs_on_device(kernel: str, accelerator: str) -> Fault:
    if kernel == "flex" and accelerator == "cpu":
        return "the flex kernel does not train on a CPU; choose auto, sdpa or reference"


@rule("optimizer.fused", "trainer.precision")
def fused_optimizer_gets_its_gradients(fused: bool | str, precision: str) -> Fault:
    if fused is True and precision == "16-mixed":
        return "a fused optimizer gets no unscaled gradients for clipping in 16-mixed; choose auto or false"


def _by_path(error: InputError, path: KeyPath) -> dict[KeyPath, str]:
    """The messages of an error by key path; `path` is that of a problem which names none."""
    return {tuple(one.key.split(".")) if one.key else path: one.message for one in error.problems}


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
