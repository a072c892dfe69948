"""The page of a comparison: well-formed, self-contained, escaped, and with every number of the report."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic import NOT_COMPARABLE, REFUSED, TRAINED, comparison

from zoo.reports.plot_page import page
from zoo.reports.report import Caveat, Difference, Report

ROOT = Path(__file__).parents[2]
VOID = {"meta", "link", "br", "img", "input", "hr"}
BREAKS_OUT = """</script><script>window.broken = 1</script><img src=x onerror="broken=2">'"&<!--{{ 1 }}"""


class Document(HTMLParser):
    """The elements of a page: (name, attributes, text). Raises where a tag is not closed in its order."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[int] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {tag} {attrs}"
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag):
        assert self.elements[self._open.pop()][0] == tag

    def handle_data(self, data):
        for place in self._open:
            self.elements[place][2].append(data)

    def all(self, tag: str, **attributes: str) -> list[tuple[dict[str, str], str]]:
        """Attributes and text of the elements of a name with these attributes."""
        return [
            (own, "".join(text).strip())
            for name, own, text in self.elements
            if name == tag and attributes.items() <= own.items()
        ]


def rows(document: Document, table: int) -> list[list[str]]:
    """The cells of a table as text, row by row."""
    tables, found = -1, []
    for name, _, text in document.elements:
        tables += name == "table"
        if tables == table and name == "tr":
            found.append([])
        elif tables == table and name in ("th", "td"):
            found[-1].append(" ".join("".join(text).split()))
    return found


def test_a_page_is_well_formed_and_loads_nothing():
    text = page(comparison(12, 4, differences=NOT_COMPARABLE))
    document = Document(text)
    ids = [own["id"] for _, own, _ in document.elements if "id" in own]
    assert len(ids) == len(set(ids))
    for name, own, _ in document.elements:
        named = [*own.get("aria-labelledby", "").split(), *re.findall(r"^#(.*)", own.get("href", ""))]
        assert set(named) <= set(ids), own
        assert "src" not in own and name not in ("iframe", "object", "embed", "base", "form"), name
        assert own.get("href", "#")[:1] in ("#", "d")
    assert re.findall(r"url\((?!#)", text) == [] and "@import" not in text
    # A namespace is a name and not an address.
    assert re.findall(r"(?:https?:)?//\w+\.", text.replace("http://www.w3.org/2000/svg", "")) == []


def test_it_is_drawn_in_a_browser(open_page, tmp_path):
    made = comparison(12, 4)
    (tmp_path / "page.html").write_text(page(made), encoding="utf-8")
    shown = open_page(tmp_path / "page.html")
    for number, panel in enumerate(made.panels):
        drawn = shown.locator(f"[data-panel='{number}'] .curve")
        assert drawn.count() == len(panel.curves)
        for index, curve in enumerate(panel.curves):
            marks = drawn.nth(index).locator(".mark, .beyond")
            assert marks.count() == sum(mean is not None for mean in curve.mean)
        assert shown.locator(f"[data-panel='{number}'] .stage > svg").is_visible()


def test_no_label_or_name_breaks_out():
    made = comparison(2, 1, differences=(BREAKS_OUT,))
    panel = made.panels[0]
    curves = [
        replace(curve, label=f"{number}{BREAKS_OUT}", runs=(f"runs/{BREAKS_OUT}",), notes={512: BREAKS_OUT})
        for number, curve in enumerate(panel.curves)
    ]
    costs = [replace(cost, label=curve.label) for cost, curve in zip(made.costs, curves, strict=True)]
    panel = replace(
        panel, protocol=BREAKS_OUT, parameters={BREAKS_OUT: BREAKS_OUT}, curves=tuple(curves),
        counted=BREAKS_OUT, interval=BREAKS_OUT, reference=curves[0].label,
        pairs={(256, curves[0].label, curves[1].label): Difference(0.1, why=BREAKS_OUT)},
    )  # fmt: skip
    report = Report(
        BREAKS_OUT, (panel,), tuple(costs), (BREAKS_OUT,), ((BREAKS_OUT, BREAKS_OUT),), BREAKS_OUT,
        (Caveat(BREAKS_OUT, BREAKS_OUT),), BREAKS_OUT,
    )  # fmt: skip
    tame, document = Document(page(comparison(2, 1, differences=("x",)))), Document(page(report))
    for name in ("script", "img", "style", "meta", "svg"):
        assert len(document.all(name)) == len(tame.all(name)), name
    assert document.all("h1")[0][1] == BREAKS_OUT
    data = json.loads(document.all("script", id="report")[0][1])
    assert data["plots"][0]["curves"][1]["label"] == f"1{BREAKS_OUT}"
    assert document.all("code", id="command")[0][1] == BREAKS_OUT


def test_the_tables_have_every_value_and_interval():
    made = comparison(6, 4)
    document = Document(page(made))
    for number, panel in enumerate(made.panels):
        header, *body = rows(document, 2 * number)
        assert [cell.split()[0] for cell in header[1:]] == [str(length) for length in panel.lengths]
        assert [cell for cell in header if "trained" in cell] == ["256 (trained)"]
        for curve, (label, *cells) in zip(panel.curves, body, strict=True):
            assert label == curve.label
            for place, cell in enumerate(cells):
                if curve.mean[place] is None:
                    assert cell == "–1"
                else:
                    low, high = curve.low[place], curve.high[place]
                    assert cell == f"{curve.mean[place]:.3f} {low:.3f}–{high:.3f}"
    notes = [text for _, text in document.all("li") if text == REFUSED]
    assert len(notes) == 4  # once in each panel, however many lengths it rules out
    costs = rows(document, 8)[1:]
    for cost, row in zip(made.costs, costs, strict=True):
        peak = "–" if cost.peak_memory_mb is None else f"{cost.peak_memory_mb:,.0f}"
        assert row[0] == cost.label and row[1] == f"{cost.added_parameters:,}" and row[-1] == peak


def test_the_best_of_each_length_is_bold():
    for accuracy in (False, True):
        made = comparison(6, 1, accuracy=accuracy)
        document, panel = Document(page(made)), made.panels[0]
        values = [[c.mean[place] for c in panel.curves if c.mean[place] is not None] for place in range(6)]
        best = [(max if accuracy else min)(column) for column in values]
        bold = [text for own, text in document.all("strong") if own == {}]
        assert bold == [f"{value:.3f}" for value in best]


def test_the_data_has_the_numbers_in_full():
    made = comparison(12, 2)
    data = json.loads(Document(page(made)).all("script", id="report")[0][1])
    for panel, drawn in zip(made.panels, data["plots"][::2], strict=True):
        assert (drawn["trained"], tuple(drawn["lengths"])) == ([TRAINED], panel.lengths)
        for curve, line in zip(panel.curves, drawn["curves"], strict=True):
            assert tuple(mark["mean"] for mark in line["marks"]) == curve.mean
            assert tuple(mark["low"] for mark in line["marks"]) == curve.low
            assert [(seed["length"], seed["value"]) for seed in line["seeds"]] == [
                (point.length, point.value) for point in curve.points
            ]


def test_a_value_that_is_not_finite_is_null_in_the_data():
    made = comparison(1, 1)
    panel = made.panels[0]
    curve = replace(panel.curves[0], high=(float("inf"),) * 6, low=(float("nan"),) * 6)
    text = page(replace(made, panels=(replace(panel, curves=(curve,)),)))

    def refuse(constant):
        raise AssertionError(constant)

    data = json.loads(Document(text).all("script", id="report")[0][1], parse_constant=refuse)
    assert data["plots"][0]["curves"][0]["marks"][0]["high"] is None


def test_runs_that_are_not_comparable_are_marked_everywhere():
    document = Document(page(comparison(3, 2, differences=NOT_COMPARABLE)))
    reported = document.all("section", **{"class": "warning"})[0][1]
    assert all(difference in reported for difference in NOT_COMPARABLE)
    assert document.all("title")[0][1].startswith("Not comparable")
    headings = [text for _, text in document.all("h2") if "not comparable" in text]
    assert len(headings) == 2 + 1 + 1  # both panels, the costs, and the warning itself
    fair = page(comparison(3, 2))
    assert not Document(fair).all("section", **{"class": "warning"})
    assert "ot comparable" not in re.sub(r"<script>.*?</script>", "", fair, flags=re.DOTALL)


def test_shared_settings_caveats_and_the_command_are_shown():
    made = comparison(3, 2)
    document = Document(page(made))
    assert [text for _, text in document.all("dd")] == [value for _, value in made.about]
    assert [text for _, text in document.all("li")] == [caveat.text for caveat in made.caveats]
    assert made.verdict.removeprefix("Verdict: ") in [text for _, text in document.all("p")]
    assert document.all("code", id="command")[0][1] == made.command


@pytest.mark.launch
def test_a_built_package_has_the_page_parts(tmp_path):
    here = tmp_path / "source"
    shutil.copytree(ROOT / "zoo", here / "zoo", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, here / name)
    build = "from setuptools import build_meta; build_meta.build_wheel('wheels')"
    (here / "wheels").mkdir()
    subprocess.run([sys.executable, "-c", build], cwd=here, check=True, capture_output=True, timeout=120)
    (wheel,) = (here / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    parts = {f"zoo/reports/page/{path.name}" for path in (ROOT / "zoo/reports/page").glob("*.*")}
    assert len(parts) >= 8 and parts <= packed
