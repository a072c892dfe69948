"""Positional encodings: one file each. `base` holds the hooks, `registry` finds what there is, `description`
reads what each says of itself, `stack` builds those of a model."""

from zoo.encodings.registry import describe, names, register

__all__ = ["describe", "names", "register"]
