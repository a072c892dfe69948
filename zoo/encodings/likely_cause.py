"""The likely cause of an exception in the code of an encoding."""

import difflib
import traceback
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from zoo.registry import Description


def explained(error: BaseException) -> str:
    """An exception as one line of text, with its likely cause where one is known."""
    text = str(error).strip()
    line = f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
    cause = likely_cause(root_of(error))
    return f"{line}; {cause}" if cause and cause not in line else line


def likely_cause(error: BaseException) -> str:
    """The cause in words; "" where none is known."""
    if not isinstance(error, AttributeError):
        return ""
    owner, name = error.obj, error.name
    if "Module.__init__()" in str(error) or (
        isinstance(owner, nn.Module) and "_parameters" not in vars(owner)
    ):
        return "call super().__init__(size) first in the constructor"
    if not isinstance(owner, nn.Module):
        return ""
    if hasattr(getattr(owner, "size", None), name):
        return f"did you mean self.size.{name}?"
    near = difflib.get_close_matches(name, dir(owner), 1)
    return f"did you mean {near[0]!r}?" if near else ""


def root_of(error: BaseException) -> BaseException:
    """The exception that began it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def line_of(error: BaseException, plugins: Sequence[Description]) -> str:
    """File and line of the last frame in a plugin's file; "" where there is none."""
    files = {str(one.file) for one in plugins}
    frames = traceback.extract_tb(root_of(error).__traceback__)
    lines = [f"{one.filename}:{one.lineno}" for one in frames if str(Path(one.filename).resolve()) in files]
    return lines[-1] if lines else ""
