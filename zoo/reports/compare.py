"""`zoo compare`: run folders in, tables, plots and a page out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zoo.errors import printable
from zoo.reports.build import build
from zoo.reports.console import console, terminal
from zoo.reports.report import Report
from zoo.reports.write import validate_out, write_report

OUT = Path("comparison")


def compare(
    paths: Sequence[Path],
    out: Path = OUT,
    protocols: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    force: bool = False,
    reference: str | None = None,
) -> Report:
    """Compare evaluated runs: print the tables, and write them with the plots and the page.

    Args:
        paths: run folders.
        out: the folder of the comparison; one that is there is replaced.
        protocols: names; by default all by which one of the runs was evaluated.
        lengths: in tokens; by default all at which one was.
        force: compare runs that are not comparable, and mark it on every output.
        reference: the label of the curve that differences are to; by default the best at the trained length.

    Raises:
        InputError: runs that cannot be read, were not evaluated or are not comparable, with all that is
            wrong; or a folder that holds anything else.
    """
    validate_out(out)
    report = build(paths, protocols, lengths, force, None if out == OUT else out, reference)
    print(console(report, *terminal()), flush=True)
    written = write_report(report, out)
    print(f"\ntables, plots and page: {printable(', '.join(map(str, written)))}")
    print(f"\n{printable(report.verdict)}", flush=True)
    return report
