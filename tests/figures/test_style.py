"""The look of curves: distinct, and the same in every figure."""

from zoo.figures.style import FIRST, HUES, STYLES, styles


def luminance(color):
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_hues_stand_out_from_white_and_from_dark_paper():
    for hue in HUES:
        for paper in ("#ffffff", "#14171c"):
            dark, light = sorted(map(luminance, (hue, paper)))
            assert (light + 0.05) / (dark + 0.05) >= 3, hue  # WCAG 1.4.11


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
