"""A comparison as a notebook shows it: a picture, the tables and the verdict."""

from __future__ import annotations

import base64
from pathlib import Path

from zoo.figures.curves import pictures
from zoo.reports.compare import write_report
from zoo.reports.page import PageSection, section_html
from zoo.reports.report import Report
from zoo.reports.tables import caveats, tables, verdict, warning
from zoo.reports.text import console


class Comparison(Report):
    """The report on runs. A notebook shows it; `print` gives the output of the command."""

    def save(self, folder: str | Path) -> list[Path]:
        """Write the files of `zoo compare --out FOLDER`. Returns their paths.

        Raises:
            InputError: the folder holds other files.
        """
        return write_report(self, Path(folder))

    def __str__(self) -> str:
        return console(self)

    def _repr_html_(self) -> str:
        html = ""
        for png in pictures(self.summary, self.title, [".png"]).values():
            source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
            html = f'<img style="max-width: 100%" src="{source}">'
        parts = [*verdict(self), *warning(self), *tables(self), *caveats(self)]
        return html + section_html(PageSection("", parts))
