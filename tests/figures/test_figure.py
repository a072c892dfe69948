"""A figure: panels on shared scales, written in every format."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from zoo.errors import InputError
from zoo.figures.figure import Column, Figure
from zoo.figures.marks import shades
from zoo.figures.page import themed
from zoo.figures.panel import Panel
from zoo.figures.style import LIGHT


def curve(key, values):
    data = {"x": np.arange(len(values)), "y": np.asarray(values, dtype=float)}

    def paint(axes, data, limits):
        axes.plot(data["x"], data["y"])
        axes.set_label("over x")

    return Panel(key, f"Title of {key}", f"What to see in {key} & more.", data, paint)


def image(key, values):
    def paint(axes, data, limits):
        axes.imshow(data["z"], vmin=limits[0], vmax=limits[1])

    return Panel(key, key, "Seen.", {"z": np.asarray(values, dtype=float)}, paint, colored="z")


@pytest.fixture
def figure():
    left = Column("left", [curve("a", [0, 1, 2, 3]), image("m", [[0, 1]])])
    right = Column("right", [curve("a", [5, 9, 9, 9]), curve("b", [1, 1]), image("m", [[4, np.nan]])])
    return Figure([left, right], "Two", trained=1, length=3)


def test_a_row_for_each_key_in_the_order_of_the_columns(figure):
    assert [key for key, _ in figure.rows] == ["a", "b", "m"]
    assert dict(figure.rows)["b"][0] is None


def test_rows_share_their_scales(figure):
    _, axes = figure._drawn()
    assert axes["left", "a"].get_ylim() == axes["right", "a"].get_ylim()
    assert [axes[side, "m"].images[0].get_clim() for side in ("left", "right")] == [(0, 4)] * 2


def test_every_format_is_written(figure, tmp_path):
    files = {suffix: figure.save(tmp_path / f"x{suffix}") for suffix in (".png", ".svg", ".gif", ".html")}
    assert sorted(tmp_path.iterdir()) == sorted(files.values())
    ElementTree.parse(files[".svg"])
    for suffix, frames in ((".png", 1), (".gif", 10)):
        with Image.open(files[suffix]) as picture:
            assert picture.size[0] > 300 and getattr(picture, "n_frames", 1) == frames
    text = files[".html"].read_text(encoding="utf-8")
    assert "What to see in b &amp; more." in text
    assert not re.search(r"(src|href)=\"(?!#|data:)", text.replace('xmlns:xlink="', ""))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_the_element_for_a_page_is_one_and_named(figure):
    root = ElementTree.fromstring(figure.svg())
    assert root.attrib["role"] == "img"
    assert "What to see in a & more." in root.attrib["aria-label"]


def test_another_suffix_is_an_error_and_writes_nothing(figure, tmp_path):
    with pytest.raises(InputError, match=r"a picture ends in \.png, \.svg, \.gif or \.html"):
        figure.save(tmp_path / "x.jpg")
    assert not [*tmp_path.iterdir()]


def test_a_page_has_the_colours_of_its_theme_and_their_shades():
    dark, light = (
        "#" + "".join(f"{round(255 * part):02x}" for part in shade) for shade in shades(LIGHT[1], 2)
    )
    seen = themed(f'"stroke: {LIGHT[1]}; fill: #ffffff" "stroke: {dark}" fill="{light}" x="#123456"')
    assert f"stroke: var(--hue-1, {LIGHT[1]}); fill: var(--paper, #ffffff)" in seen
    assert '"stroke: color-mix(in srgb, var(--hue-1) 55%, var(--ink))"' in seen
    assert 'fill="color-mix(in srgb, var(--hue-1) 45%, var(--paper))"' in seen
    assert '"#123456"' in seen
