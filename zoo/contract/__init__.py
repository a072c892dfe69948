"""The contract: the laws that every encoding keeps, and the code that tries them.

One suite with three users. The zoo's tests try every law on every registered encoding; `zoo check` tries the
same laws on one, for the author of a plugin; `fit` tries a few of them on a plugin (`trial`). A law is a
function with a name and a sentence (`law`); it is tried on a `Subject`, an encoding in a small decoder or
encoder (`small_model`); `variants` finds the subjects of an encoding.
The laws are in `declarations`, `hooks`, `causality`, `numerics`, `kernel_equivalence`, `memory_scaling`,
`positions` and `training`; those of datasets and protocols in `dataset_laws` and `protocol_laws`.
"""

# Importing a module of laws adds them to the list, in this order: a law comes after those that it needs.
from zoo.contract import (  # noqa: I001, F401
    declarations, hooks, causality, numerics, kernel_equivalence, memory_scaling, positions, training,
)  # fmt: skip
from zoo.contract.law import LAWS, Finding, Law
from zoo.contract.small_model import Subject

__all__ = ["LAWS", "Finding", "Law", "Subject"]
