"""Which models an architecture holds: tests of the keys and of the encoding of a recipe's section `model`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zoo.recipe import schema

Model = dict[str, Any]  # the section `model` of a recipe, as plain data
Condition = tuple[Any, ...] | Callable[[Any, Model], bool]  # values that a key may have, or a test

EQUAL_SCALINGS = ("none", "linear", "ntk", "yarn", "llama3")
"""Scalings of RoPE that do not depend on the length of the sequence at hand, and are the same in both."""
# Keys of the section that every architecture takes, or that change no result of a trained model.
IN_ALL = {"kind", "d_model", "num_layers", "num_heads", "norm_eps", "dropout", "tie_embeddings", "kernel"}


def faults_of(takes: Mapping[str, Condition], model: Model) -> list[str]:
    """Which keys keep a model from being held: `norm is layernorm`; empty where none does."""
    found = []
    for key, field in schema.ModelConfig.model_fields.items():
        if key == "encoding" or key in IN_ALL:
            continue
        taken, value = takes.get(key, (field.default,)), model.get(key, field.default)
        if not (taken(value, model) if callable(taken) else value in taken):
            found.append(f"{key} is {'null' if value is None else value}")
    return found


def any_value(value: Any, model: Model) -> bool:
    return True


def four_widths(value: int, model: Model) -> bool:
    """Of `d_ff`, where an architecture has no choice."""
    return value == 4 * model["d_model"]


def own_heads(value: int | None, model: Model) -> bool:
    """Of `head_dim`, where an architecture has no choice."""
    return value in (None, model["d_model"] // model["num_heads"])


def one_width(pattern: Any, model: Model) -> bool:
    """Of `window`, where an architecture has one width, for layers of its choice."""
    several = pattern if isinstance(pattern, list | tuple) else [pattern]
    return len({*several} - {None}) <= 1


def called(encoding: Any) -> str:
    """The name of an encoding, or those of several."""
    return "+".join(map(called, encoding)) if isinstance(encoding, list) else encoding["name"]


def only(name: str, **wanted: Iterable[Any]) -> Callable[[Model], str | None]:
    """A test for an encoding of this name, with one of the values wanted for each of these options."""

    def fault(model: Model) -> str | None:
        encoding = model["encoding"]
        if called(encoding) != name or isinstance(encoding, list):
            return f"encoding is {called(encoding)}"
        others = [
            f"{name} has {key} {encoding[key]}" for key, good in wanted.items() if encoding[key] not in good
        ]
        return ", ".join(others) or None

    return fault


ROTARY: dict[str, Any] = {"layout": ("half",), "scaling": EQUAL_SCALINGS, "proportion": (1.0,)}
WHOLE_ROPE, PARTIAL_ROPE = only("rope", **ROTARY, partial=(1.0,)), only("rope", **ROTARY)


def fixed_alibi(model: Model) -> str | None:
    """A test for ALiBi with the slopes that published models have."""
    fault = only("alibi", learned=(False,))(model)
    heads = model["num_heads"]
    # The two rules for slopes differ where the heads are no power of two.
    if fault is None and model["encoding"]["slopes"] != "official" and heads & (heads - 1):
        return f"alibi has slopes {model['encoding']['slopes']}"
    return fault
