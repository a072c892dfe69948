"""The hues of the curves: told apart by every colour vision, and visible on the paper they are on."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import zoo.reports.page
from zoo.figures.style import DARK, DASHES, LIGHT, css

STYLE = (Path(zoo.reports.page.__file__).parent / "page.css").read_text(encoding="utf-8")

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
VISIONS = {
    "every cone": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
# Ottosson 2020: linear RGB to the cube of cone responses, and from their roots to OKLab.
TO_CONES = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
TO_LAB = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
          [0.0259040371, 0.7827717662, -0.8086757660]]  # fmt: skip


def themes() -> dict[str, dict[str, np.ndarray]]:
    """The colours that page.css names, in light and in dark, as linear RGB."""
    blocks = re.findall(r":root \{(.*?)\}", STYLE, flags=re.DOTALL)
    made = {
        theme: {name: linear(value) for name, value in re.findall(r"--([\w-]+): (#\w{6})", block)}
        for theme, block in zip(("light", "dark"), blocks, strict=True)
    }
    for theme, hues in (("light", LIGHT), ("dark", DARK)):
        made[theme] |= {f"hue-{number}": linear(hue) for number, hue in enumerate(hues)}
    return made


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    """WCAG 2.2's contrast ratio of two colours."""
    dark, light = sorted(float(colour @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def seen(colour: np.ndarray, vision: str) -> np.ndarray:
    """A colour in OKLab, as it is seen."""
    return TO_LAB @ np.cbrt(TO_CONES @ np.clip(VISIONS[vision] @ colour, 0, 1))


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_two_hues_are_alike_to_any_eye(theme, vision):
    colours = themes()[theme]
    hues = [seen(colours[f"hue-{number}"], vision) for number in range(len(LIGHT))]
    nearest = min(np.linalg.norm(one - other) for one, other in itertools.combinations(hues, 2))
    # Six times what a careful eye just tells apart (0.02).
    assert nearest > 0.12


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_stand_out_and_text_can_be_read(theme):
    colours = themes()[theme]
    for number in range(len(LIGHT)):  # WCAG 1.4.11: graphics, 3 to 1
        assert contrast(colours[f"hue-{number}"], colours["paper"]) >= 3
        assert contrast(colours[f"hue-{number}"], colours["raised"]) >= 2.8
    for ink in ("ink", "soft", "link"):  # WCAG 1.4.3: text, 4.5 to 1
        for paper in ("paper", "raised"):
            assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
    assert contrast(colours["warn-ink"], colours["warn-paper"]) >= 4.5
    assert contrast(colours["warn-ink"], colours["paper"]) >= 4.5
    assert contrast(colours["axis"], colours["paper"]) >= 3


def test_the_style_has_every_hue_and_dash():
    hues, dashes = set(re.findall(r"\.(hue-\d)", css())), set(re.findall(r"\.(dash-\d)", css()))
    assert hues == {f"hue-{number}" for number in range(len(LIGHT))}
    assert dashes == {f"dash-{number}" for number in range(1, len(DASHES))}  # the first is a whole line
