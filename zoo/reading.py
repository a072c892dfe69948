"""Files that anybody may have made, read within bounds: a run folder is opened long after it was written.

A file of another kind, too large, nested too deeply or with control characters is told, and nothing hangs.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem

MAX_BYTES = 16 << 20
MAX_DEPTH = 32
MAX_DIGITS = 19
"""Of a whole number: more do not fit into 64 bits."""

# What a terminal would act upon instead of showing it, and halves of characters, which no file can hold.
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def control_character(text: str) -> str | None:
    """The first character of a text that is none to be read, as `U+001B`; None where all are."""
    found = _NO_TEXT.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"


def read_bytes(file: Path, limit: int) -> bytes:
    """The content of an ordinary file.

    Raises:
        InputError: none of `limit` bytes or fewer can be read there; a pipe or device is not waited for.
    """
    where = str(file)
    try:
        # Without O_NONBLOCK the opening of a pipe waits for somebody who writes into it.
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InputError(Problem("cannot be read: it is no ordinary file", where=where))
            raw = opened.read(limit + 1)
    except IsADirectoryError as error:
        raise InputError(Problem("cannot be read: it is a folder", where=where)) from error
    except (OSError, ValueError) as error:  # ValueError: no name that a file can have
        cause = getattr(error, "strerror", None) or error
        raise InputError(Problem(f"cannot be read: {cause}", where=where)) from error
    if len(raw) > limit:
        size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
        raise InputError(Problem(f"cannot be read: larger than {size}", where=where))
    return raw


def read_text(file: Path, limit: int, advice: str = "") -> str:
    """The text of an ordinary file in UTF-8, with or without a byte order mark.

    `advice` is what to do about one that holds something else.

    Raises:
        InputError: as `read_bytes`, or it is not UTF-8; the line is told.
    """
    raw = read_bytes(file, limit)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(Problem(f"is not UTF-8 text{advice}", where=f"{file}:{line}")) from error


def read_json(file: Path, limit: int = MAX_BYTES, advice: str = "") -> Any:
    """What a JSON file holds. Numbers that are none (NaN, or beyond what a float holds) are None.

    `advice` is what to do about one that holds something else.

    Raises:
        InputError: it cannot be read, or holds what the zoo never writes: values nested deeper than
            MAX_DEPTH, whole numbers beyond 64 bits, control characters. The line is told where there is one.
    """
    text = read_text(file, limit, advice)
    try:
        value = json.loads(text, parse_constant=lambda _: None, parse_float=_finite, parse_int=_whole)
        fault = _fault(value)
    except json.JSONDecodeError as error:
        place, fault = f"{file}:{error.lineno}", f"it is not JSON: {error.msg}"
        raise InputError(Problem(f"cannot be read: {fault}{advice}", where=place)) from error
    except RecursionError:
        fault = _TOO_DEEP
    except ValueError as error:
        fault = str(error)
    if fault is not None:
        raise InputError(Problem(f"cannot be read: {fault}{advice}", where=str(file)))
    return value


_TOO_DEEP = "nested too deeply"


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"a whole number of {len(text.lstrip('-'))} digits in it")
    return int(text)


def _fault(value: Any) -> str | None:
    level = [value]
    for _ in range(MAX_DEPTH):
        texts = [one for one in level if isinstance(one, str)]
        texts += [key for one in level if isinstance(one, dict) for key in one]
        character = control_character("".join(texts))
        if character is not None:
            return f"a control character ({character}) in it"
        lists = [one for one in level if isinstance(one, list)]
        lists += [one.values() for one in level if isinstance(one, dict)]
        level = [inner for values in lists for inner in values]
        if not level:
            return None
    return _TOO_DEEP
