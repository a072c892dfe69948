"""Qwen3: Llama with normalised queries and keys (Yang et al. 2025, arXiv:2505.09388)."""

from zoo.pretrained.architectures import Architecture, Decoder, llama, qwen2
from zoo.pretrained.config import Config
from zoo.pretrained.options import WHOLE_ROPE, one_width

DEFAULTS = qwen2.DEFAULTS | {"head_dim": 128, "attention_bias": False}


def read(config: Config) -> Decoder:
    return qwen2.read_windows(config, qk_norm=True)


TAKES = llama.TAKES | {"bias": ("none", "attention"), "qk_norm": (True,), "window": one_width}
ARCHITECTURE = Architecture(
    "Qwen3", "qwen3", DEFAULTS, read, llama.rows, "model.", llama.write_with_windows, TAKES, WHOLE_ROPE
)
