"""Rules between the keys of a recipe, checked once all values are valid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zoo import registry
from zoo.errors import InputError, hint
from zoo.launch.devices import batch_fault, cpu_precision_fault, number_of_devices
from zoo.recipe.encoding import ENCODING, encodings_in
from zoo.recipe.schema import ModelConfig, Recipe
from zoo.recipe.sections import MAX_TOKENS, construct
from zoo.recipe.tree import dotted


class Fault(NamedTuple):
    """A broken rule: the key to blame, the message, and the other keys that the rule reads."""

    key: str
    message: str
    involved: tuple[str, ...] = ()


def broken_rules(recipe: Recipe) -> Iterator[Fault]:
    """The rules that a recipe breaks."""
    data, trainer, optimizer, kind = recipe.data, recipe.trainer, recipe.optimizer, recipe.model.kind
    about = registry.optimizers.describe(optimizer.name)
    if "lr" not in [option.name for option in about.options]:
        message = f"optimizer {about.name!r} ({about.where}) has no lr: its constructor must take `lr: float`"
        yield Fault("optimizer.name", message)
    if optimizer.fused is True and trainer.precision == "16-mixed":
        message = (
            "a fused optimizer gets no unscaled gradients for clipping in 16-mixed; choose auto or false"
        )
        yield Fault("optimizer.fused", message, ("trainer.precision",))
    yield from _of_model(recipe.model)
    if recipe.model.kernel == "flex" and trainer.accelerator == "cpu":
        message = "the flex kernel does not train on a CPU; choose auto, sdpa or reference"
        yield Fault("model.kernel", message, ("trainer.accelerator",))
    number = number_of_devices(trainer.devices)
    if trainer.devices in (0, []) or (isinstance(trainer.devices, int) and trainer.devices < -1):
        yield Fault("trainer.devices", "must be a number above 0, a list of indices, -1 for all, or auto")
    elif number is not None:  # `auto` is checked when the run starts
        parts = "trainer.devices", "trainer.num_nodes", "trainer.accumulate_grad_batches"
        accumulate = trainer.accumulate_grad_batches
        if fault := batch_fault(data.batch_size, number, trainer.num_nodes, accumulate):
            yield Fault("data.batch_size", fault, parts)
    for path, about in encodings_in(recipe.model.encoding, ENCODING):
        if not getattr(about, kind):
            yield Fault(dotted(path), f"encoding {about.name!r} is not for {_a(kind)}", ("model.kind",))
    task, dataset = registry.tasks.describe(recipe.task.name), registry.datasets.describe(data.name)
    if task.takes != dataset.gives:
        fitting = [name for name, one in registry.datasets.all().items() if one.gives == task.takes]
        message = f"task {task.name!r} cannot be learned from {data.name!r}; it needs {' or '.join(fitting)}"
        yield Fault("task", message, ("task.name", "data.name"))
    elif kind not in task.kinds:
        message = f"task {task.name!r} is not for {_a(kind)}, only for {' or '.join(map(_a, task.kinds))}"
        yield Fault("task", message, ("task.name", "model.kind"))
    yield from _of_evaluation(recipe)
    try:
        opened = construct(registry.datasets, data.name, data)
        opened.validate(data)
    except InputError as error:
        yield from _faults_of(error, "data", "evaluate.lengths")
        return
    lengths = {"data.sequence_length": data.sequence_length}
    lengths |= {f"evaluate.lengths.{index}": one for index, one in enumerate(recipe.evaluate.lengths or ())}
    for key, length in lengths.items():
        if length < opened.shortest:
            message = f"{length} is too short for {data.name}, which needs at least {opened.shortest} tokens"
            yield Fault(key, message, ("data", "evaluate.lengths"))


def _of_model(model: ModelConfig) -> Iterator[Fault]:
    if model.d_model % model.num_heads and model.head_dim is None:
        message = f"{model.num_heads} heads do not divide d_model {model.d_model}"
        yield Fault("model.num_heads", message, ("model.d_model", "model.head_dim"))
    if model.num_kv_heads and model.num_heads % model.num_kv_heads:
        message = f"{model.num_kv_heads} key and value heads do not divide {model.num_heads} heads"
        yield Fault("model.num_kv_heads", message, ("model.num_heads",))
    position = model.norm_position
    if not model.first_norm and position not in ("pre", "both"):
        message = f"norm_position {position} normalises no input of attention; leave the key out"
        yield Fault("model.first_norm", message, ("model.norm_position",))
    if model.parallel_residual and position == "post":
        reason = "which a parallel feed-forward does not wait for"
        message = f"norm_position post normalises after attention, {reason}"
        yield Fault("model.parallel_residual", message, ("model.norm_position",))
    if isinstance(model.window, tuple) and (unused := len(model.window) - model.num_layers) > 0:
        entries = f"pattern has {len(model.window)} entries but num_layers is {model.num_layers}"
        yield Fault("model.window", f"{entries}; the last {unused} are unused", ("model.num_layers",))
    if model.sink_tokens and model.kind != "decoder":
        message = "only a decoder has sink tokens; leave the key out"
        yield Fault("model.sink_tokens", message, ("model.kind",))
    elif model.sink_tokens and model.window is None:
        message = "sink tokens are those visible beyond a window; set model.window too"
        yield Fault("model.sink_tokens", message, ("model.window",))


def _of_evaluation(recipe: Recipe) -> Iterator[Fault]:
    evaluate, lengths = recipe.evaluate, recipe.evaluate.lengths or ()
    involved = "evaluate.protocols", "task.name", "evaluate", "evaluate.lengths"
    for index, name in enumerate(evaluate.protocols or ()):
        key = f"evaluate.protocols.{index}"
        if fault := no_protocol(name, recipe.task.name):
            yield Fault(key, fault, involved)
            continue
        try:
            construct(registry.protocols, name, evaluate).validate(evaluate, lengths)
        except InputError as error:
            yield from _faults_of(error, key, *involved)
    tokens, longest = evaluate.max_tokens or MAX_TOKENS, max([0, *lengths])
    if registry.datasets.describe(recipe.data.name).gives == "text" and tokens < longest:
        message = f"{tokens} tokens are less than one sequence of length {longest}"
        involved = "evaluate.lengths", "data.name", "data.sequence_length"
        yield Fault("evaluate.max_tokens", message, involved)


def not_for_training(recipe: Recipe) -> Iterator[Fault]:
    """The rules of training that a recipe breaks, which may be that of a trained model."""
    if recipe.trainer.accelerator == "cpu" and (fault := cpu_precision_fault(recipe.trainer.precision)):
        yield Fault("trainer.precision", fault, ("trainer.accelerator",))
    for path, about in encodings_in(recipe.model.encoding, ENCODING):
        if about.replaces:
            message = f"{about.name} is for evaluation: train with {' or '.join(about.replaces)}, then"
            yield Fault(dotted(path), f"{message} `zoo evaluate RUN --set {dotted(path)}={about.name}`")


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
    return f"no protocol {name!r} for task {task!r}; {hint(name, known)}"


def _faults_of(error: InputError, key: str, *involved: str) -> Iterator[Fault]:
    """The problems of an error; `key` is that of a problem which names none."""
    return (Fault(one.key or key, one.message, (key, *involved)) for one in error.problems)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
