"""Qwen2: Llama with biases of queries, keys and values (Yang et al. 2024, arXiv:2407.10671)."""

from zoo.pretrained.architectures import Architecture, Decoder, llama
from zoo.pretrained.conditions import WHOLE_ROPE, one_width, own_heads
from zoo.pretrained.config import Config


def read(config: Config) -> Decoder:
    return llama.read(config, bias="qkv")


TAKES = llama.TAKES | {"bias": ("qkv",), "head_dim": own_heads, "window": one_width}
ARCHITECTURE = Architecture(
    "Qwen2", "qwen2", read, llama.rows, "model.", llama.write_with_windows, TAKES, WHOLE_ROPE
)
