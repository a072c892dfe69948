"""Mistral: Llama with a sliding window (Jiang et al. 2023, arXiv:2310.06825)."""

from typing import Any

from zoo.pretrained.architectures import Architecture, llama
from zoo.pretrained.conditions import WHOLE_ROPE, Model


def write(model: Model, length: int) -> dict[str, Any]:
    return llama.write(model, length) | {"sliding_window": model["window"]}


def has_window(value: Any, model: Model) -> bool:
    return isinstance(value, int)


ARCHITECTURE = Architecture(
    "Mistral", "mistral", llama.read, llama.rows, "model.", write,
    llama.TAKES | {"window": has_window}, WHOLE_ROPE,
)  # fmt: skip
