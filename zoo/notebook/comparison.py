"""A comparison as an object that a notebook shows: a picture, the tables and the verdict."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.reports.csv_export import as_csv
from zoo.reports.plot import plot
from zoo.reports.plot_page import environment
from zoo.reports.report import Report
from zoo.reports.tables import order_text, tables
from zoo.reports.text import NOT_COMPARABLE, console
from zoo.reports.write import write_report

if TYPE_CHECKING:
    import pandas as pd

TEMPLATE = """
{% if report.differences %}
<p><strong>{{ refused }}</strong>: compared nevertheless, although {{ report.differences | join("; ") }}</p>
{% endif %}
{% if picture %}
<img alt="{{ report.title }}" style="max-width: 100%" src="data:image/png;base64,{{ picture }}">
{% endif %}
<p>{{ report.verdict }}</p><p>{{ order }}</p>
{% for table in tables %}
<table><caption>{{ table.title }}</caption>
<thead><tr>{% for one in table.header %}<th>{{ one }}</th>{% endfor %}</tr></thead>
<tbody>
{% for line in table.lines %}
<tr><th>{{ line.label }}{{ line.beside }}</th>
{% for cell in line.cells %}
<td>{% if cell.best %}<b>{{ cell.text }}</b>{% else %}{{ cell.text }}{% endif %}
{{ cell.spread }}{{ cell.tail }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody></table>
{% for line in table.below %}<p><small>{{ line }}</small></p>{% endfor %}
{% endfor %}
{% if report.caveats %}
<details><summary>Caveats ({{ report.caveats | length }})</summary><ul>
{% for one in report.caveats %}<li>{{ one }}</li>{% endfor %}
</ul></details>
{% endif %}
"""


@dataclass(frozen=True, repr=False)
class Comparison:
    """What runs come to beside each other. A notebook shows it; `print` gives what the command prints."""

    report: Report

    @property
    def verdict(self) -> str:
        """Who is ahead of whom and by how much, who is tied, and what that rests on, in a sentence."""
        return self.report.verdict

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each encoding, protocol and length, with the columns of compare.csv: mean, its interval,
        rank, the paired difference to the reference and its interval, seeds, costs."""
        import pandas as pd

        # `none` and `nan` are names here, and only an empty cell is nothing.
        return pd.read_csv(io.StringIO(as_csv(self.report)), keep_default_na=False, na_values=[""])

    @cached_property
    def pictures(self) -> dict[str, bytes]:
        """The plot as `.png` and `.svg`; none where nothing is finite."""
        return plot(self.report.panels, self.report.title)

    def save(self, folder: str | Path) -> list[Path]:
        """Write what `zoo compare --out FOLDER` writes: table, CSV, plots and page. Returns the files.

        Raises:
            InputError: the folder holds anything else than a comparison, or cannot be written.
        """
        return write_report(self.report, Path(folder))

    def __repr__(self) -> str:
        return f"<Comparison: {self.report.title}>"

    def __str__(self) -> str:
        return f"{console(self.report)}\n\n{self.verdict}"

    def _repr_html_(self) -> str:
        png = self.pictures.get(".png")
        return (
            environment()
            .from_string(TEMPLATE)
            .render(
                report=self.report,
                refused=NOT_COMPARABLE,
                picture=png and base64.b64encode(png).decode(),
                order=order_text(self.report),
                tables=tables(self.report),
            )
        )
