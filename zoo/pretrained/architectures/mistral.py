"""Mistral: Llama with a sliding window (Jiang et al. 2023, arXiv:2310.06825)."""

from zoo.pretrained.architectures import Architecture
from zoo.pretrained.architectures.llama import read, rows

ARCHITECTURE = Architecture(read, rows, "model.")
