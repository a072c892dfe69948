"""The look of curves: distinct for every kind of colour vision, and the same in every figure."""

from itertools import combinations

import numpy as np

from zoo.figures.style import FIRST, HUES, STYLES, styles

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
VISIONS = {
    "normal": np.eye(3),
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
PAPER = ("#ffffff", "#14171c")


def linear(color):
    parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """WCAG 2.2's contrast ratio of two linear colours."""
    dark, light = sorted(float(color @ [0.2126, 0.7152, 0.0722]) for color in (one, other))
    return (light + 0.05) / (dark + 0.05)


def test_hues_are_distinct_for_every_colour_vision_and_stand_out_from_the_paper():
    colors = [linear(hue) for hue in HUES]
    for vision, matrix in VISIONS.items():
        seen = [TO_LAB @ np.cbrt(TO_CONES @ np.clip(matrix @ color, 0, 1)) for color in colors]
        nearest = min(np.linalg.norm(one - other) for one, other in combinations(seen, 2))
        assert nearest > 0.12, vision  # six times the smallest difference that can be seen
    for paper in PAPER:
        # WCAG 1.4.11: 3 to 1 for graphics.
        assert min(contrast(color, linear(paper)) for color in colors) >= 3


def test_no_two_of_many_curves_look_alike():
    assert len(set(STYLES)) == len(STYLES)
    assert len(set(styles(f"e{index}" for index in range(60)).values())) == 60
    for count in range(1, 7):
        looks = styles(f"e{index}" for index in range(count)).values()
        # Few curves all have their own hue, and solid lines.
        assert len({one.color for one in looks}) == count and {one.dash for one in looks} == {()}


def test_a_plugin_has_one_colour_on_all_pages():
    for name in ("my_rope", "slope", "mine"):
        alone = styles([name])[name]
        assert styles([f"{name} rate=0.1"])[f"{name} rate=0.1"] == alone
        for others in (["rope"], ["none", "alibi", "t5", "rope"], [*FIRST, "kerple", "fire"]):
            assert styles([*others, name])[name] == alone


def test_an_encoding_looks_the_same_in_every_report():
    alone = {label: styles([label])[label] for label in ("rope", "alibi", "none", "t5", "kerple")}
    assert len(set(alone.values())) == 5
    for labels in (["rope", "alibi"], ["none", "alibi", "t5", "rope"], ["kerple"]):
        assert styles(labels) == {label: alone[label] for label in labels}
