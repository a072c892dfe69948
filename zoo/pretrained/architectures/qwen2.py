"""Qwen2: Llama with biases of queries, keys and values (Yang et al. 2024, arXiv:2407.10671)."""

from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder, llama
from zoo.pretrained.config import NONE, Config
from zoo.pretrained.options import WHOLE_ROPE, one_width, own_heads, windows

DEFAULTS = llama.NO_BIASES | {
    "num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28,
    "layer_types": None,
}  # fmt: skip


def read(config: Config) -> Decoder:
    return read_windows(config, bias="qkv")


def read_windows(config: Config, **own: Any) -> Decoder:
    """The first `max_window_layers` layers see all, the others a window."""
    used, first = config.take("use_sliding_window", kind=bool), config.take("max_window_layers")
    width, layers = config.take("sliding_window", kind=(int, NONE)), config.take("num_hidden_layers")
    window = windows(config, width if used else None, [layer >= first for layer in range(layers)])
    return llama.read(config, window=window, **own)


TAKES = llama.TAKES | {"bias": ("qkv",), "head_dim": own_heads, "window": one_width}
ARCHITECTURE = Architecture(
    "Qwen2", "qwen2", DEFAULTS, read, llama.rows, "model.", llama.write_with_windows, TAKES, WHOLE_ROPE
)
