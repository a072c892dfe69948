"""`zoo draw`: from names and files to a figure."""

import textwrap

import numpy as np
import pytest
from PIL import Image

from zoo.cli import main
from zoo.figures.grid import Panel, grid

SMALL = ["--trained", "8", "--length", "16", "--heads", "2", "--d-model", "16"]
PLUGIN = """
    import torch
    import zoo

    @zoo.register("figures_saw")
    class Saw(zoo.Encoding):
        \"\"\"Scores rise and fall with the distance.\"\"\"

        relative = True

        def bias(self, head, q, k):
            return -((q - k) % 5).abs() * (head + 1.0)

    @zoo.register("figures_shift")
    class Shift(zoo.Encoding):
        \"\"\"Adds the position to the first dimension.\"\"\"

        def embed(self, x, pos):
            return x + pos[..., None].to(x.dtype) / 100
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch, forgetful_registry):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(textwrap.dedent(PLUGIN), encoding="utf-8")
    return file


def test_names_are_drawn_into_the_working_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["draw", "alibi", "{name: rope, base: 100}", *SMALL]) == 0
    assert "alibi_rope-base=100.png" in capsys.readouterr().out.splitlines()[-1]
    with Image.open(tmp_path / "alibi_rope-base=100.png") as picture:
        assert picture.size[0] > 700


def test_panels_are_chosen_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["draw", "alibi", "rope", "--panels", "angles,attention", "--out", "a.pdf", *SMALL]) == 0
    assert "3 panels of alibi, rope: a.pdf" in capsys.readouterr().out
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert main(["draw", "alibi", "--panels", "atention", *SMALL]) == 2
    assert "--panels: no panel 'atention'; did you mean 'attention'?" in capsys.readouterr().err


def test_the_encodings_of_a_file_are_drawn_by_their_hooks(plugin, capsys):
    assert main(["draw", "mine.py", "--out", "mine.svg", *SMALL]) == 0
    text = (plugin.parent / "mine.svg").read_text(encoding="utf-8")
    assert "figures_saw" in text and "figures_shift" in text
    assert "Bias of each head by distance" in text and "Vectors added to the tokens" in text
    assert main(["draw", "mine.py:figures_saw", "--out", "saw.svg", *SMALL]) == 0
    assert "figures_shift" not in (plugin.parent / "saw.svg").read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["draw", "mine.py:figures_sew", *SMALL]) == 2
    assert "did you mean 'figures_saw'?" in capsys.readouterr().err


WRONG = (
    (["rope", "--out", "x.gif"], ["--out x.gif: the name must end in .png or .svg or .pdf or .html"]),
    (["rope", "--trained", "99", "--length", "9"], ["--trained 99 is beyond --length 9"]),
    (["ropee", "alibbi"], ["no encoding 'ropee'; did you mean 'rope'?", "no encoding 'alibbi'"]),
    (["rope", "--heads", "3"], ["--d-model 128"]),
    (["rope", "--length", "100000"], ["--length 100000"]),
    (["none"] * 9, ["9 encodings"]),
    (["no/such.py"], ["no/such.py"]),
)  # fmt: skip


def test_wrong_input_is_one_message_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for arguments, expected in WRONG:
        assert main(["draw", *arguments]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == len(expected), lines
        assert all(part in line for part, line in zip(expected, lines, strict=True)), lines
    assert not [*tmp_path.iterdir()]


def test_drawn_pages_open_in_a_browser(tmp_path, monkeypatch, open_page):
    monkeypatch.chdir(tmp_path)
    assert main(["draw", "alibi", "rope", "--out", "two.html", *SMALL]) == 0
    pictures = open_page("two.html").locator("figure img")
    assert pictures.count() >= 4 and pictures.first.bounding_box()["height"] > 100


def curve(key, values):
    def draw(axes, data):
        axes.plot(data["y"], label="line")

    return Panel(key, f"Title of {key}", "What to see.", {"y": np.asarray(values, dtype=float)}, draw)


def image(key, values):
    def draw(axes, data):
        axes.imshow(data["z"])

    return Panel(key, key, "Seen.", {"z": np.asarray(values, dtype=float)}, draw)


def test_panels_of_one_key_stand_in_a_row_and_share_their_scales():
    columns = {
        "left": [curve("a", [0, 1, 2, 3]), image("m", [[0, 1]])],
        "right": [curve("a", [5, 9, 9, 9]), curve("b", [1, 1]), image("m", [[4, np.nan]])],
    }
    (a, other, b, m, same) = grid(columns, "Two").axes
    assert a.get_ylim() == other.get_ylim() and b.get_ylim() != a.get_ylim()
    assert a.get_position().y0 == other.get_position().y0 > m.get_position().y1
    assert m.get_position().y0 == pytest.approx(same.get_position().y0)
    assert m.images[0].get_clim() == same.images[0].get_clim() == (0, 4)
