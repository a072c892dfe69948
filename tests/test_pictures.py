"""The pictures that Markdown files show: there, small, and made by the script."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
FILES = ["README.md", "docs/visualize.md", "recipes/README.md", "data/README.md"]


@pytest.mark.parametrize("name", FILES)
def test_what_a_file_links_to_is_there(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    missing = [link for link in links if not (ROOT / name).parent.joinpath(link).exists()]
    assert not missing


def test_every_picture_is_small_and_shown():
    shown = "".join((ROOT / name).read_text(encoding="utf-8") for name in FILES)
    files = sorted(PICTURES.iterdir())
    assert files
    for file in files:
        assert file.stat().st_size <= 200_000, file
        assert f"pictures/{file.name}" in shown, file
    drawn = re.findall(r'^    "(\w+)": \[', (ROOT / "scripts" / "draw_pictures.py").read_text(), re.MULTILINE)
    assert sorted(f"{name}.png" for name in drawn) == [file.name for file in files]
