"""A comparison as an object that a notebook shows: a picture, the tables and the verdict."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.figures.curves import pictures
from zoo.reports.compare import write_report
from zoo.reports.page import Section, section_html
from zoo.reports.report import Report
from zoo.reports.tables import parts
from zoo.reports.text import console

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
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

    @cached_property
    def pictures(self) -> dict[str, bytes]:
        """The plot as `.png` and `.svg`; none where nothing is finite."""
        return pictures(self.report.summary, self.report.title)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the files of `zoo compare --out FOLDER`. Returns their paths.

        Raises:
            InputError: the folder holds other files, or cannot be written.
        """
        return write_report(self.report, Path(folder))

    def __repr__(self) -> str:
        return f"<Comparison: {self.report.title}>"

    def __str__(self) -> str:
        return "\n- ".join([f"{console(self.report)}\n\nVerdict:", *self.verdict])

    def _repr_html_(self) -> str:
        png = base64.b64encode(self.pictures.get(".png", b"")).decode()
        picture = f'<img style="max-width: 100%" src="data:image/png;base64,{png}">' if png else ""
        return picture + section_html(Section("Verdict", [self.verdict, *parts(self.report)]))
