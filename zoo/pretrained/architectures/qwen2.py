"""Qwen2: Llama with biases of queries, keys and values (Yang et al. 2024, arXiv:2407.10671)."""

from zoo.pretrained.architectures import Architecture, Decoder
from zoo.pretrained.architectures.llama import read as read_llama
from zoo.pretrained.architectures.llama import rows
from zoo.pretrained.config import Config


def read(config: Config) -> Decoder:
    return read_llama(config, bias="qkv")


ARCHITECTURE = Architecture(read, rows, "model.")
