"""`zoo draw`: from names and files to a picture."""

import textwrap

import pytest
from accessible import assert_accessible
from PIL import Image

from zoo.cli import main

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


def test_a_name_is_drawn_into_the_working_folder_and_the_last_line_says_where(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["draw", "alibi", "{name: rope, base: 100}", *SMALL]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1].endswith("of alibi, rope base=100: alibi_rope-base=100.png")
    )
    with Image.open(tmp_path / "alibi_rope-base=100.png") as picture:
        assert picture.size[0] > 700


def test_the_encodings_of_a_file_are_drawn_by_their_hooks(plugin, capsys):
    assert main(["draw", "mine.py", "--out", "mine.html", *SMALL]) == 0
    page = (plugin.parent / "mine.html").read_text(encoding="utf-8")
    assert "figures_saw" in page and "figures_shift" in page
    assert "Bias of each head by distance" in page and "Vectors added to the tokens" in page
    assert main(["draw", "mine.py:figures_saw", "--out", "saw.svg", *SMALL]) == 0
    assert "figures_shift" not in (plugin.parent / "saw.svg").read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["draw", "mine.py:figures_sew", *SMALL]) == 2
    assert "did you mean 'figures_saw'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["ropee", "--out", "x.jpg", "--trained", "99", "--length", "9"],
         ["--out x.jpg: a picture ends in .png, .svg, .gif or .html", "--trained: 99 is beyond --length 9",
          "no encoding 'ropee'; did you mean 'rope'?"]),
        (["rope", "--heads", "3"], ["--d-model: 128 is no multiple of twice --heads 3"]),
        (["rope", "--length", "100000"],
         ["--length: 100000 tokens of 4 heads are too many pairs for a picture: give at most 1024"]),
        (["none"] * 9, ["9 encodings do not fit beside each other: give at most 8"]),
        (["no/such.py"], ["no/such.py"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_message_and_nothing_is_written(
    arguments, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["draw", *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(said) and all(part in line for part, line in zip(said, lines, strict=True))
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_axe_finds_nothing_on_a_page(tmp_path, monkeypatch, browser):
    monkeypatch.chdir(tmp_path)
    assert main(["draw", "alibi", "rope", "sinusoidal", "--out", "three.html", *SMALL]) == 0
    assert_accessible(browser, "three.html")
