"""Positional encodings: one file each. `base` holds the hooks, `stack` builds those of a model."""

from zoo.registry import encodings, register

describe, names = encodings.describe, encodings.names

__all__ = ["describe", "names", "register"]
