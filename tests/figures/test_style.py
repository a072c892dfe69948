"""The look of curves: distinct, and the same in every figure."""

from zoo import registry
from zoo.figures.style import FIRST, HUES, STYLES, styles


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
