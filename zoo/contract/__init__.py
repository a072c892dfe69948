"""The contract: the laws that every encoding keeps, and the bench on which they are tried.

One suite with three users. The zoo's tests run every law on every registered encoding; `zoo check` runs the
same laws on one, for the author of a plugin; `fit` tries a plugin by a few of them (`trial`). A law is a
function with a name and a sentence (`law`); it is tried on a `subject`, an encoding in a small decoder or
encoder; `variants` finds the subjects of an encoding.
The laws stand in `words`, `hooks`, `numerics`, `ways`, `growth`, `order`, `places` and `training`.
"""

# Importing a room of laws is what brings them into the list, in the order in which they are told.
from zoo.contract import words, hooks, order, numerics, ways, growth, places, training  # noqa: F401, I001
from zoo.contract.law import LAWS, Finding, Law
from zoo.contract.subject import Subject

__all__ = ["LAWS", "Finding", "Law", "Subject"]
