"""Which run was meant by a path that is none. Imports nothing heavy."""

from __future__ import annotations

import difflib
import os
from contextlib import suppress
from pathlib import Path

from zoo.runs.folder import CARD, LAST, RECIPE, RUNS

LONGEST_NAME = 255
"""Of a file; of a longer one nothing is near."""


def near_run(path: Path) -> str:
    """`; did you mean runs/NAME?`: the run beside the path, or in runs/, whose name is nearest; else nothing."""
    known: dict[str, Path] = {}
    for folder in (RUNS, path.parent):
        with suppress(OSError, ValueError):
            known.update({one.name: one for one in sorted(folder.iterdir()) if _is_run(one)})
    near = difflib.get_close_matches(path.name, known, n=1) if len(path.name) <= LONGEST_NAME else []
    return f"; did you mean {os.path.normpath(known[near[0]])}?" if near else ""


def _is_run(folder: Path) -> bool:
    return any((folder / part).is_file() for part in (RECIPE, CARD, LAST))
