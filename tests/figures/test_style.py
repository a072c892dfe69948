"""The look of curves: distinct, and the same in every figure."""

import numpy as np

from zoo import registry
from zoo.figures.style import FIRST, HUES, STYLES, styles

# Linear RGB as people without red, green and blue cones see it (Machado et al., 2009).
VISION = {
    "all": np.eye(3),
    "no red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
LMS = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
LAB = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
"""Linear RGB to Oklab, a space in which distances are those that people see."""


def linear(colors):
    rgb = np.array([[int(one[place : place + 2], 16) / 255 for place in (1, 3, 5)] for one in colors])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def test_hues_stand_out_from_white_and_from_each_other():
    rgb = linear(HUES)
    contrast = 1.05 / (rgb @ [0.2126, 0.7152, 0.0722] + 0.05)
    assert contrast.min() >= 2.99  # WCAG 1.4.11
    for name, seen in VISION.items():
        lab = np.cbrt((rgb @ np.transpose(seen)).clip(0, 1) @ np.transpose(LMS)) @ np.transpose(LAB)
        distances = np.linalg.norm(lab[:, None] - lab, axis=-1)[np.triu_indices(len(HUES), 1)]
        assert distances.min() > (0.17 if name == "all" else 0.085), name


def test_no_two_of_many_curves_look_alike():
    assert len(set(STYLES)) == len(STYLES)
    assert len(set(styles(f"e{index}" for index in range(60)).values())) == 60
    for count in range(1, len(HUES) + 1):
        looks = styles(f"e{index}" for index in range(count)).values()
        # Few curves all have their own hue, and solid lines.
        assert len({one.color for one in looks}) == count and {one.dash for one in looks} == {()}


def test_the_most_used_encodings_look_the_same_in_every_figure():
    alone = {label: styles([label])[label] for label in FIRST}
    assert len({one.color for one in alone.values()}) == len(FIRST)
    for others in (["mine", "slope"], registry.encodings.all()):
        assert alone.items() <= styles([*others, *FIRST]).items()


def test_a_plugin_has_one_colour_on_all_pages():
    for name in ("my_rope", "slope", "mine"):
        alone = styles([name])[name]
        assert styles([f"{name} rate=0.1"])[f"{name} rate=0.1"] == alone
        for others in (["rope"], ["none", "alibi", "t5", "rope"], [*FIRST, "xpos"]):
            assert styles([*others, name])[name] == alone
