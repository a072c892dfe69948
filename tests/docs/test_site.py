"""The documentation builds without a warning, and a page of it opens from disk."""

import importlib.util
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest

import leaderboard

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_every_link_of_the_site_has_a_target(site):
    """Also in raw HTML and in generated pages, which MkDocs does not check."""
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {page: {*re.findall(r'\bid="([^"]+)"', text)} for page, text in pages.items()}
    dead = []
    for page, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            target, _, anchor = unquote(unescape(link)).partition("#")
            if re.match(r"[a-z]+:|/$", target) or page.name == "404.html":
                continue
            path = (page.parent / target).resolve() if target else page
            if not path.exists() or (anchor and path in anchors and anchor not in anchors[path]):
                dead.append((page.relative_to(site).as_posix(), link))
    assert len(pages) > 60 and dead == []


@pytest.mark.slow
def test_the_search_of_the_site_works_from_disk(site, open_page):
    page = open_page(site / "index.html")
    page.locator("label[for='__search'].md-header__button").click()
    page.locator("input.md-search__input").press_sequentially("stick_breaking")
    page.locator("a.md-search-result__link[href*='stick_breaking.html']").first.wait_for()


@pytest.mark.slow
def test_a_page_of_an_encoding_opens_from_disk(site, open_page):
    text = (site / "encodings" / "alibi.html").read_text()
    assert "<math" in text and "1.9e-06" in text and "arxiv.org/abs/2108.12409" in text
    values = pd.read_csv(ROOT / "docs" / "results" / "values.csv").query(
        "study == 'text' and encoding == 'alibi'"
    )
    assert f"{values.iloc[0]['value']:.3f}" in text
    page = open_page(site / "encodings" / "alibi.html")
    assert page.locator("img[src$='alibi.svg']").evaluate("image => image.naturalWidth") > 100


def test_stored_tables_are_those_of_the_code():
    """`python docs/hooks/gallery.py` writes them."""
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "hooks" / "gallery.py")
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    pages = [page for page in (ROOT / "docs").glob("*.md") if gallery.MARKED.search(page.read_text())]
    assert len(pages) == 6
    for page in pages:
        assert gallery.stored(page.read_text()) == page.read_text(), page


def test_the_readme_has_rows_of_the_leaderboard():
    page = (ROOT / "docs" / "results" / "leaderboard.md").read_text()
    rows = leaderboard.BLOCK.search((ROOT / "README.md").read_text())[0].splitlines()
    cells = [
        [cell.strip(" `") for cell in row.strip("|").split(" | ")] for row in rows if row.startswith("| `")
    ]
    assert len(cells) == 8
    for name, text, change, *_ in cells:
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} "))
        assert f" {text} " in row and f" {change} " in row


@pytest.mark.slow
def test_a_click_on_a_head_sorts_the_values(site, open_page):
    page = open_page(site / "results" / "values.html")
    table = page.locator("article table")
    column = table.locator("th").all_inner_texts().index("text 1x")
    for largest_first in (True, False):
        table.locator("th").nth(column).click()
        cells = [row.locator("td").nth(column).inner_text() for row in table.locator("tbody tr").all()]
        values = [float(cell) for cell in cells if cell != "–"]
        assert values == sorted(values, reverse=largest_first) and len(values) > 15
        assert {*cells[len(values) :]} == {"–"}
