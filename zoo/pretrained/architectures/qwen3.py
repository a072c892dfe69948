"""Qwen3: Llama with normalised queries and keys (Yang et al. 2025, arXiv:2505.09388)."""

from zoo.pretrained.architectures import Architecture, Decoder
from zoo.pretrained.architectures.llama import read as read_llama
from zoo.pretrained.architectures.llama import rows
from zoo.pretrained.config import Config


def read(config: Config) -> Decoder:
    return read_llama(config, qk_norm=True)


ARCHITECTURE = Architecture(read, rows, "model.")
