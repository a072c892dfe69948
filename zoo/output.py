"""Standard output and error that cannot show every character: what they cannot show degrades, and nothing
raises. Imports nothing heavy."""

from __future__ import annotations

import codecs
import sys

PLAIN = {
    "±": "+/-", "–": "-", "×": "x", "…": "...", "“": '"', "”": '"', "▲": "^",
    **{raised: f"^{number}" for number, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}  # fmt: skip
"""What tables and messages use beyond ASCII, in ASCII."""


def show_all() -> None:
    """From now on stdout and stderr write what their encoding lacks (ASCII under LANG=C, and lone surrogates
    of file names under any) in ASCII, instead of raising UnicodeEncodeError."""
    for stream in (sys.stdout, sys.stderr):
        # There may be none (pythonw), or one that takes any text.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_HANDLER)


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    first = error.object[error.start]
    if first in PLAIN:
        return PLAIN[first], error.start + 1
    return first.encode("ascii", "backslashreplace").decode("ascii"), error.start + 1


_HANDLER = "zoo.in_ascii"
codecs.register_error(_HANDLER, _in_ascii)
