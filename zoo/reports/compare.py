"""`zoo compare`: run folders in, tables, plots and a page out."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from zoo.errors import printable
from zoo.reports.build import assemble
from zoo.reports.report import Comparison
from zoo.reports.text import console
from zoo.reports.write import must_be_ours, write_comparison

OUT = Path("comparison")


def compare(
    paths: Sequence[Path],
    out: Path = OUT,
    protocols: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    force: bool = False,
    reference: str | None = None,
) -> Comparison:
    """Compare evaluated runs: print the tables, and write them with the plots and the page.

    Args:
        paths: run folders.
        out: the folder of the comparison; one that is there is replaced.
        protocols: names; by default all by which one of the runs was evaluated.
        lengths: in tokens; by default all at which one was.
        force: compare runs that are not comparable, and mark it on every output.
        reference: the label of the curve that differences are to; by default the best at the trained length.

    Raises:
        InputError: runs that cannot be read, were not evaluated or are not comparable, all of them told; or a
            folder that holds anything else.
    """
    must_be_ours(out)
    comparison, panels = assemble(paths, protocols, lengths, force, None if out == OUT else out, reference)
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else None
    print(console(comparison, width, bold=on_terminal and "NO_COLOR" not in os.environ), flush=True)
    written = write_comparison(comparison, panels, out)
    print(f"\ntables, plots and page: {printable(', '.join(map(str, written)))}")
    print(f"\n{printable(comparison.verdict)}", flush=True)
    return comparison
