"""The documentation builds without a warning, and a page of it opens from disk."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_a_page_of_an_encoding_opens_from_disk(site, open_page):
    text = (site / "encodings" / "alibi.html").read_text()
    assert "<math" in text and "1.633" in text and "1.9e-06" in text and "arxiv.org/abs/2108.12409" in text
    page = open_page(site / "encodings" / "alibi.html")
    assert page.locator("img[src$='alibi.svg']").evaluate("image => image.naturalWidth") > 100


NUMBER = re.compile(r"\b\d\.\d{2,3}\b")


def test_every_number_in_the_text_was_measured():
    """The numbers of the pages below are in a stored comparison, or on a page that a script wrote."""
    names = ["choose.md", "evaluation.md", "tasks.md", "results/index.md", "results/questions.md"]
    written = [ROOT / "README.md", *(ROOT / "docs" / name for name in names)]
    stored = set()
    for file in (ROOT / "scripts" / "results").glob("*/compare.csv"):
        stored |= {
            f"{abs(float(cell)):.3f}" for cell in re.findall(r"(?<=,)-?\d+\.\d+(?=,)", file.read_text())
        }
    pages = {*(ROOT / "docs" / "results").glob("*.md"), ROOT / "scripts" / "results" / "costs.md"}
    for page in pages - set(written):
        stored |= set(NUMBER.findall(page.read_text()))
    numbers = set(NUMBER.findall("".join(page.read_text() for page in written)))
    assert len(numbers) > 8
    assert numbers <= stored


def test_the_readme_has_the_short_table_of_the_leaderboard():
    page = (ROOT / "docs" / "results" / "leaderboard.md").read_text().partition("most used encodings")[2]
    table = re.search(r"^\|.*?\n\n.*?\n", page, re.MULTILINE | re.DOTALL)[0]
    assert table.count("\n|") == 11 and table in (ROOT / "README.md").read_text()
