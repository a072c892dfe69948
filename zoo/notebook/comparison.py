"""A comparison as an object that a notebook shows: a picture, the tables and the verdict."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.figures.curves import pictures
from zoo.reports.compare import write_report
from zoo.reports.page import PageSection, section_html
from zoo.reports.report import Report
from zoo.reports.tables import caveats, tables, warning
from zoo.reports.text import console

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """The comparison of runs. A notebook shows it; `print` gives the output of the command."""

    report: Report

    @property
    def verdict(self) -> tuple[str, ...]:
        """The findings and their limits."""
        return self.report.verdict

    @property
    def table(self) -> pd.DataFrame:
        """A row for each encoding, protocol and length, as in compare.csv."""
        return self.report.table

    def save(self, folder: str | Path) -> list[Path]:
        """Write the files of `zoo compare --out FOLDER`. Returns their paths.

        Raises:
            InputError: the folder holds other files, or cannot be written.
        """
        return write_report(self.report, Path(folder))

    def __str__(self) -> str:
        return "\n- ".join([f"{console(self.report)}\n\nVerdict:", *self.verdict])

    def _repr_html_(self) -> str:
        report, html = self.report, ""
        for png in pictures(report.summary, report.title, [".png"]).values():
            source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
            html = f'<img style="max-width: 100%" src="{source}">'
        parts = [self.verdict, *warning(report), *tables(report), *caveats(report)]
        return html + section_html(PageSection("Verdict", parts))
