"""In a browser: every value lies where the axes say, and what cannot be drawn is reported."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from synthetic import LABELS, TRAINED, comparison

from zoo.figures.style import styles
from zoo.reports.cutoff import TIMES_THE_BEST

PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_every_value_is_drawn_where_the_axes_say(show, seen, axes, viewport):
    made = comparison(12, 4)
    page = show(made, viewport)
    for number, panel in enumerate(made.panels):
        x, y = axes(page, number)
        drawn = seen(page, number)
        limit = TIMES_THE_BEST * min(m for c in panel.curves for m in c.mean if m is not None)
        trained = page.locator(f"[data-panel='{number}'] line.trained").bounding_box()
        assert trained["x"] + trained["width"] / 2 == pytest.approx(x(TRAINED), abs=1.5)
        for index, curve in enumerate(panel.curves):
            means = {n: m for n, m in zip(curve.lengths, curve.mean, strict=True) if m is not None}
            own = drawn.pop(index)
            assert sorted([*own["beyond"], *own["marks"]]) == list(means)
            assert all(means[length] > limit for length in own["beyond"])
            for length, at in own["marks"].items():
                assert at == pytest.approx((x(length), y(means[length])), abs=1)
            for length, (left, _) in own["beyond"].items():
                assert left == pytest.approx(x(length), abs=1)
            inside = [point for point in curve.points if point.value <= limit]
            assert len(own["seeds"]) >= len(inside) > 0
            # What is little above the limit still has room in the margin.
            expected = [(x(point.length), y(point.value)) for point in inside]
            np.testing.assert_allclose(own["seeds"][: len(inside)], expected, atol=1)
        assert drawn == {}
        assert page.locator(f"[data-panel='{number}'] .beyond").count() >= 4  # of the curve that failed


def test_the_line_goes_through_the_marks_and_the_shade_around_them(show):
    page = show(comparison(6, 1))
    own = page.locator("[data-panel] .curve[data-curve='4']")
    marks = own.locator(".mark").evaluate_all("all => all.map((one) => one.getAttribute('transform'))")
    points = [tuple(map(float, re.findall(r"[-\d.]+", one))) for one in marks]
    numbers = list(map(float, re.findall(r"[\d.]+", own.locator(".line").get_attribute("d"))))
    assert list(zip(numbers[::2], numbers[1::2], strict=True)) == points
    band = list(map(float, re.findall(r"[\d.]+", own.locator(".band").get_attribute("d"))))
    above, below = band[1:12:2], band[-1:11:-2]
    for over, (_, middle), under in zip(above, points, below, strict=True):
        assert over < middle < under and middle - over == pytest.approx(under - middle, abs=0.02)


def test_a_mark_has_its_hue_on_the_screen(show, seen):
    from PIL import Image

    page = show(comparison(6, 1), color_scheme="light")
    page.locator(".key[data-curve='1']").click(modifiers=["Shift"])
    page.mouse.move(0, 0)
    page.keyboard.press("Escape")
    at = tuple(map(round, seen(page)[1]["marks"][2048]))
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    color = styles(LABELS[:6])[LABELS[1]].color
    np.testing.assert_allclose(picture.getpixel(at), [int(color[i : i + 2], 16) for i in (1, 3, 5)], atol=12)


def test_a_line_has_a_gap_where_nothing_was_measured(show):
    made = comparison(1, 1)
    panel = made.panels[0]
    (curve,) = panel.curves

    def without(values):
        return (*values[:2], None, *values[3:])

    curve = replace(
        curve, mean=without(curve.mean), low=without(curve.low), high=without(curve.high),
        sd=without(curve.sd), points=tuple(p for p in curve.points if p.length != 1024),
        notes={1024: "no memory"},
    )  # fmt: skip
    page = show(replace(made, panels=(replace(panel, curves=(curve,)),)))
    lines = page.locator("[data-panel] .curve .line").evaluate_all(
        "all => all.map((one) => one.getAttribute('d'))"
    )
    assert [len(re.findall("[ML]", line)) for line in lines] == [2, 3]


def test_what_is_cut_or_not_finite_is_reported(show, seen):
    made = comparison(3, 1)
    panel = made.panels[0]
    alibi = panel.curves[0]
    burst = replace(alibi, mean=(*alibi.mean[:5], None), notes={8192: "not finite"})
    page = show(replace(made, panels=(replace(panel, curves=(burst, *panel.curves[1:])),)))
    drawn = seen(page)
    assert list(drawn[0]["beyond"]) == [8192] and sorted(drawn[2]["beyond"]) == [512, 1024, 2048, 4096, 8192]
    text = page.locator("[data-panel] .cut").text_content()
    assert text == (
        "Above the plot, marked ▲: alibi (not finite at 8192); sinusoidal (2.558 at 512 … 6.172 at 8192)."
    )


def test_it_is_drawn_anew_for_another_width(show, seen, axes):
    made = comparison(3, 1)
    page = show(made)
    page.set_viewport_size(PHONE)
    page.wait_for_function("document.querySelector('.stage > svg').getAttribute('width') < 360")
    x, y = axes(page)
    at = seen(page)[0]["marks"][1024]
    assert at == pytest.approx((x(1024), y(made.panels[0].curves[0].mean[2])), abs=1)


def test_accuracies_are_drawn_from_none_to_all(show, seen, axes):
    made = comparison(6, 1, accuracy=True)
    page = show(made)
    x, y = axes(page)
    for index, curve in enumerate(made.panels[0].curves):
        drawn = seen(page)[index]
        assert drawn["marks"][256] == pytest.approx((x(256), y(curve.mean[0])), abs=1)
        assert not drawn["beyond"]
    ticks = page.locator("[data-panel] text.value").all_text_contents()
    assert (ticks[0], ticks[-1]) == ("0.0", "1.0")


def test_a_single_length_is_drawn_too(show, seen):
    made = comparison(2, 1, 1)
    panel = made.panels[0]
    curves = [
        replace(c, lengths=(256,), mean=c.mean[:1], low=c.low[:1], high=c.high[:1], points=c.points[:1])
        for c in panel.curves
    ]
    page = show(replace(made, panels=(replace(panel, lengths=(256,), curves=tuple(curves)),)))
    assert [sorted(own["marks"]) for own in seen(page).values()] == [[256], [256]]


def test_every_trained_length_is_marked_and_the_axis_says_what_it_is(show, axes):
    made = comparison(2, 4)
    panels = [
        replace(panel, curves=(panel.curves[0], replace(panel.curves[1], train_length=1024)))
        for panel in made.panels
    ]
    page = show(replace(made, panels=tuple(panels)))
    x, _ = axes(page)
    boxes = page.locator("[data-panel='0'] line.trained").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect()).map((b) => (b.left + b.right) / 2)"
    )
    assert boxes == pytest.approx([x(256), x(1024)], abs=1.5)
    for number, words in ((0, "length (tokens)"), (3, "context (tokens)")):
        assert words in page.locator(f"[data-panel='{number}'] text.title").all_text_contents()
