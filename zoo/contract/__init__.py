"""The contract: the laws that encodings, datasets and protocols keep, and the code that tries them.

The zoo's tests try every law on every registered encoding, `zoo check` on a plugin, and `fit` a few of them
on a plugin before training. `law` defines a law and tries laws; the other modules hold them by theme.
"""

# Importing a module of laws adds them to the list, in this order: a law comes after the laws that it needs.
from zoo.contract import (  # noqa: I001, F401
    declarations, hooks, causality, numerics, positions, kernel_equivalence, training,
)  # fmt: skip
from zoo.contract.law import LAWS, Outcome, Law
from zoo.contract.subject import Subject

__all__ = ["LAWS", "Law", "Outcome", "Subject"]
