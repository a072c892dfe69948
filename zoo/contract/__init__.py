"""The contract: the laws that every encoding keeps, and the bench on which they are tried.

One suite with three users. The zoo's tests run every law on every registered encoding; `zoo check` runs the
same laws on one, for the author of a plugin; `fit` tries a plugin by a few of them (`trial`). A law is a
function with a name and a sentence (`law`); it is tried on a `Subject`, an encoding in a small decoder or
encoder (`small_model`); `variants` finds the subjects of an encoding.
The laws are in `declarations`, `hooks`, `causality`, `numerics`, `kernel_equivalence`, `memory_scaling`,
`positions` and `training`; those of datasets and protocols in `dataset_laws` and `protocol_laws`.
"""

# Importing a module of laws adds them to the list, in this order: what a law needs stands before it.
from zoo.contract import (  # noqa: I001, F401
    declarations, hooks, causality, numerics, kernel_equivalence, memory_scaling, positions, training,
)  # fmt: skip
from zoo.contract.law import LAWS, Finding, Law
from zoo.contract.small_model import Subject

__all__ = ["LAWS", "Finding", "Law", "Subject"]
