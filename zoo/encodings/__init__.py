"""Positional encodings: one file each. `base` holds the hooks, `registry` finds what there is."""

from zoo.encodings.registry import describe, names, register

__all__ = ["describe", "names", "register"]
