"""Links between the files of the repository, as GitHub shows them."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^(```+|~~~+).*?^\1", re.DOTALL | re.MULTILINE)
LINK = re.compile(
    r"""\]\((?P<inline>[^)\s]+)[^)]*\)|^\[[^\]]+\]:\s+(?P<named>\S+)|(?:href|src)="(?P<html>[^"]+)\"""",
    re.MULTILINE,
)
HEADING = re.compile(r"^#+ +(.+?)[ #]*$", re.MULTILINE)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a clone")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def markdown(file: Path) -> str:
    """The text of a page or of a notebook without its code."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return re.sub(r"`[^`\n]*`(?!\])", "", FENCED.sub("", text))


def anchors(file: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCED.sub("", file.read_text(encoding="utf-8"))):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)|<[^>]+>", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def dead_links(file: Path, files: set[Path]) -> list[str]:
    """Links of a page whose file is not in the repository, or whose anchor is not on its page."""
    dead = []
    for found in LINK.finditer(markdown(file)):
        link = next(filter(None, found.groups()))
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (file.parent / target).resolve() if target else file
        if path not in files or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            dead.append(link)
    return dead


def test_every_link_has_a_target_on_github():
    files = tracked()
    targets = {path for file in files for path in (file, *file.parents) if path.is_relative_to(ROOT)}
    pages = [file for file in files if file.suffix in (".md", ".ipynb")]
    assert len(pages) > 20
    assert {page: dead for page in pages if (dead := dead_links(page, targets))} == {}


def test_a_dead_link_is_found(tmp_path):
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A `b`, c\n\n# A `b`, c\n\n```\n# code\n```\n")
    page.write_text(
        "[1](other.md) [2](gone.md) [3](other.md#a-b-c) [4](other.md#a-b-c-1) [5](other.md#code)\n"
        '![6](gone.png "title") <img src="gone.svg"> [7](#none) [8](https://example.org/none)\n\n'
        "[9]: gone.txt\n"
        "`[10](code.md)`\n\n```\n[11](code.md)\n```\n"
    )
    dead = ["gone.md", "other.md#code", "gone.png", "gone.svg", "#none", "gone.txt"]
    assert dead_links(page, {page, other}) == dead
