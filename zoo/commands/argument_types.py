"""Types of the options of the command line, and the option `--set` of several verbs."""

from __future__ import annotations

import argparse


def add_set(verb: argparse.ArgumentParser, about: str) -> None:
    """Add `--set KEY=VALUE` with its help."""
    verb.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help=f"{about}; may be given several times"
    )


def whole_numbers(text: str, least: int = 0) -> list[int]:
    numbers = [int(part) for part in text.split(",") if part.isdecimal()]
    if len(numbers) != text.count(",") + 1 or min(numbers) < least:
        raise argparse.ArgumentTypeError(f"whole numbers from {least} on, as in 1,2,3; got {text!r}")
    return numbers


def lengths(text: str) -> list[int]:
    return whole_numbers(text, least=1)


def whole_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number from 0 on is needed; got {text!r}")
    return int(text)


def count(text: str) -> int:
    if whole_number(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number above 0 is needed; got {text!r}")
    return int(text)


def words(text: str) -> list[str]:
    words = [word for word in text.split(",") if word]
    if not words:
        raise argparse.ArgumentTypeError(f"names are separated by commas, as in a,b; got {text!r}")
    return words
