"""Mistral: Llama with a sliding window (Jiang et al. 2023, arXiv:2310.06825)."""

from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder, llama
from zoo.pretrained.config import NONE, Config
from zoo.pretrained.options import WHOLE_ROPE, Model

DEFAULTS = llama.NO_BIASES | {"num_key_value_heads": 8, "sliding_window": 4096}


def read(config: Config) -> Decoder:
    return llama.read(config, window=config.take("sliding_window", kind=(int, NONE)))


def write(model: Model, length: int) -> dict[str, Any]:
    return llama.write(model, length) | {"sliding_window": model["window"]}


def has_window(value: Any, model: Model) -> bool:
    return isinstance(value, int)


ARCHITECTURE = Architecture(
    "Mistral", "mistral", DEFAULTS, read, llama.rows, "model.", write,
    llama.TAKES | {"window": has_window}, WHOLE_ROPE,
)  # fmt: skip
