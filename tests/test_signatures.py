"""Signatures read from source equal those of the imported class."""

import typing
from typing import Any, Literal

from zoo.signatures import REQUIRED, UNREAD, Option, read_signature

SOURCE = """
raise RuntimeError("this source must not be run")

class One:
    def __init__(self, size, width: int, scale: float = 1.0, *, kind: Literal["a", "b"] = "a",
                 forward: "int | None" = None, wild: Unheard[int] = (1, 2), need: str,
                 many: typing.List[float] | None = None, other: Wrapped = None, made: int = compute(),
                 either: Optional["Union[int, str]"] = -1, pair: tuple[int, ...] = (), three: 3 = 3,
                 both: (int, str) = 1, ran: Field(gt=exit()) = 1, item: list[print("run")] = None, **rest):
        pass

class Two:
    pass
"""


class Wrapped:
    pass


def test_keyword_options_with_types_and_defaults():
    assert read_signature(SOURCE, "One", {"Wrapped": Wrapped}) == (
        Option("scale", float, 1.0),
        Option("kind", Literal["a", "b"], "a"),
        Option("forward", int | None, None),
        Option("wild", Any, (1, 2)),
        Option("need", str, REQUIRED),
        Option("many", list[float] | None, None),
        Option("other", Wrapped, None),
        Option("made", int, UNREAD),
        Option("either", typing.Optional[typing.Union[int, str]], -1),  # noqa: UP007, UP045
        Option("pair", tuple[int, ...], ()),
        Option("three", Any, 3),
        Option("both", Any, 1),
        Option("ran", Any, 1),
        Option("item", Any, None),
    )


def test_a_class_without_a_constructor_has_no_signature():
    assert read_signature(SOURCE, "Two") is None
    assert read_signature(SOURCE, "Three") is None
