"""What an architecture of `transformers` says of itself: which models it holds, and its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from zoo.recipe import schema

Model = dict[str, Any]
"""The section `model` of a resolved recipe, as plain data, with the `d_ff` that the model has."""

EQUAL_SCALINGS = ("none", "linear", "ntk", "yarn", "llama3")
"""Scalings of RoPE that do not depend on the length of the sequence at hand, and are the same in both."""
IN_ALL = {"kind", "d_model", "num_layers", "num_heads", "norm_eps", "dropout", "tie_embeddings", "kernel"}
"""Keys of the section that every architecture takes, or that change no result of a trained model."""


@dataclass(frozen=True)
class Architecture:
    """One of `transformers`.

    Attributes:
        title: what it is called.
        model_type: in `config.json`.
        takes: values that keys may have, or a test of them; other keys must have their default.
        encoding: why it cannot hold the encoding of a model; None where it can.
        config: the keys of its configuration, from the section and the trained length.
    """

    title: str
    model_type: str
    takes: Mapping[str, tuple[Any, ...] | Callable[[Any, Model], bool]]
    encoding: Callable[[Model], str | None]
    config: Callable[[Model, int], dict[str, Any]]

    def weights(self, own: Mapping[str, Tensor], model: Model) -> Iterator[tuple[str, Tensor]]:
        """Its weights by their names, from those of a model: the table that `import` reads, inverted.

        A bias that the model lacks is zeros.
        """
        table = import_module(f"zoo.pretrained.architectures.{self.model_type}").ARCHITECTURE
        for row in table.rows(model):
            value = own.get(row.ours)
            if value is None:
                value = torch.zeros(len(own[row.ours.removesuffix("bias") + "weight"]))
            yield from zip(row.theirs, row.split(value), strict=True)

    def faults(self, model: Model) -> list[str]:
        """Why it cannot hold a model: `norm is 'layernorm'`; empty where it can."""
        found = []
        for key, field in schema.ModelConfig.model_fields.items():
            if key == "encoding" or key in IN_ALL:
                continue
            taken, value = self.takes.get(key, (field.default,)), model.get(key, field.default)
            if not (taken(value, model) if callable(taken) else value in taken):
                found.append(f"{key} is {'null' if value is None else value}")
        fault = self.encoding(model)
        return [*found, *([fault] if fault else [])]


def any_value(value: Any, model: Model) -> bool:
    return True


def four_widths(value: int, model: Model) -> bool:
    """Of `d_ff`, where an architecture has no choice."""
    return value == 4 * model["d_model"]


def head_width(model: Model) -> int:
    return model.get("head_dim") or model["d_model"] // model["num_heads"]


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


ROTARY = {"layout": ("half",), "scaling": EQUAL_SCALINGS, "proportion": (1.0,)}
WHOLE_ROPE, PARTIAL_ROPE = only("rope", **ROTARY, partial=(1.0,)), only("rope", **ROTARY)


def rope_parameters(model: Model, encoding: dict[str, Any], length: int) -> dict[str, Any]:
    """`rope_parameters` and the length they are for, from the options of the zoo's rope."""
    scaling, factor, base = encoding["scaling"], encoding["factor"], encoding["base"]
    given: dict[str, Any] = {"rope_type": "default", "partial_rotary_factor": encoding["partial"]}
    if scaling == "ntk":
        width = round(encoding["partial"] * head_width(model))
        base *= factor ** (width / (width - 2))
    elif scaling != "none":
        given |= {"rope_type": scaling, "factor": factor}
    keys = {
        "llama3": ("low_freq_factor", "high_freq_factor"),
        "yarn": ("beta_fast", "beta_slow", "truncate", "attention_factor"),
    }.get(scaling, ())
    original = encoding["original_length"] or length
    given |= {key: encoding[key] for key in keys if encoding[key] is not None}
    given |= {"original_max_position_embeddings": original} if keys else {}
    longest = length if scaling == "none" else max(length, int(original * factor))
    return {"rope_parameters": given | {"rope_theta": base}, "max_position_embeddings": longest}
