"""In a browser: what the pointer, a finger and the keyboard do."""

import pytest
from synthetic import LABELS, comparison

PHONE = {"width": 360, "height": 740}


def curves_of(page, panel: int = 0) -> list[int]:
    """The indices of the curves that a panel shows."""
    found = page.locator(f"[data-panel='{panel}'] .curve")
    return sorted(found.evaluate_all("all => all.map((one) => Number(one.dataset.curve))"))


@pytest.mark.parametrize("seeds, lengths", [(1, [512]), (3, [256, 1024, 8192])])
def test_hovering_shows_every_number(show, seen, tooltip, seeds, lengths):
    made = comparison(6, 1, seeds)
    page = show(made)
    drawn = seen(page)
    tried = 0
    for index, curve in enumerate(made.panels[0].curves):
        for length in lengths:
            at = curve.lengths.index(length)
            places = drawn[index]["marks"] | drawn[index]["beyond"]
            if curve.mean[at] is None:
                assert length not in places
                continue
            page.mouse.move(*places[length])
            said = tooltip(page)
            mean = f"{curve.mean[at]:.3f}"
            assert said["curve"] == curve.label
            ratio = "" if length == 256 else f"{length // 256}× "
            assert said["at"] == f"length {length} ({ratio}trained)"
            low, high = curve.low[at], curve.high[at]
            assert said[curve.label] == f"{mean} ({low:.3f}–{high:.3f})"
            # Of all curves that have a value there, whichever is meant.
            assert {c.label for c in made.panels[0].curves if c.mean[at] is not None} <= said.keys()
            assert said["documents"] == "60" and said["seeds"] == str(seeds)
            if seeds > 1:
                assert said["standard deviation"] == f"{curve.sd[at]:.3f}"
                own = {f"seed {p.seed}": f"{p.value:.3f}" for p in curve.points if p.length == length}
                assert len(own) == 3 and own.items() <= said.items()
            tried += 1
    assert tried == (5 if seeds == 1 else 5 * 3 + 1)
    page.mouse.move(5, 5)
    assert tooltip(page) == {}


def test_a_click_hides_a_line_everywhere_and_another_shows_it(show):
    page = show(comparison(6, 2))
    key = page.locator("[data-panel='1'] .key[data-curve='2']")
    for shown in (False, True):
        key.click()
        expected = [0, 1, 2, 3, 4, 5] if shown else [0, 1, 3, 4, 5]
        assert curves_of(page, 0) == curves_of(page, 1) == expected
        pressed = page.locator(".key[data-curve='2']").evaluate_all("all => all.map((k) => k.ariaPressed)")
        assert pressed == [str(shown).lower()] * 2
        off = page.locator("tr.off .name").all_text_contents()
        assert off == ([] if shown else ["sinusoidal"] * 5)  # two panels, their differences, the costs
        # The failed curve was what was cut; without it the others have the plot.
        assert page.locator("[data-panel] .beyond").count() == (10 if shown else 0)
        assert page.locator("[data-panel] .cut:visible").count() == (2 if shown else 0)
        assert page.locator("[data-panel='0'] .all").is_enabled() != shown


def test_the_axis_fits_what_is_shown(show, axes):
    made = comparison(6, 1)
    page = show(made)
    page.locator(".key[data-curve='4']").dblclick()
    _, y = axes(page)
    means = made.panels[0].curves[4].mean
    whole = page.locator("[data-panel] .stage > svg").bounding_box()["height"]
    assert abs(y(means[-1]) - y(means[0])) > 0.4 * whole


def test_a_double_click_isolates_and_another_brings_all_back(show):
    page = show(comparison(6, 2))
    key = page.locator("[data-panel='0'] .key[data-curve='4']")
    key.dblclick()
    assert curves_of(page, 0) == curves_of(page, 1) == [4]
    key.dblclick()
    assert curves_of(page) == [0, 1, 2, 3, 4, 5]
    key.dblclick()
    key.click()
    assert curves_of(page) == []
    page.locator("[data-panel='1'] .all").click()
    assert curves_of(page) == [0, 1, 2, 3, 4, 5]


def test_the_keyboard_switches_lines(show):
    page = show(comparison(6, 1))
    page.locator("[data-panel] .stage").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == LABELS[0]
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert curves_of(page) == [2, 3, 4, 5]
    page.keyboard.press("Shift+Enter")
    assert curves_of(page) == [1]
    page.keyboard.press("Shift+Enter")
    assert curves_of(page) == [0, 1, 2, 3, 4, 5]


def test_the_arrow_keys_read_the_curves(show, tooltip):
    page = show(comparison(6, 1))
    page.locator("[data-panel] .stage").focus()
    for key, curve, length in (
        ("ArrowRight", 0, 256), ("ArrowRight", 0, 512), ("ArrowUp", 1, 512), ("ArrowRight", 1, 1024),
        ("ArrowDown", 0, 1024), ("ArrowDown", 0, 1024), ("ArrowLeft", 0, 512),
    ):  # fmt: skip
        page.keyboard.press(key)
        said = tooltip(page)
        assert (said["curve"], said["at"].split()[1]) == (LABELS[curve], str(length))
        # That one value is read aloud, and not those of all lines.
        aloud = page.locator("[data-panel] [role=status]").text_content()
        assert aloud == f"{LABELS[curve]}, {said['at']}: {said[LABELS[curve]]}"
    page.keyboard.press("Escape")
    assert tooltip(page) == {}


def test_a_finger_on_a_phone_reads_a_value_and_switches_a_line(show, seen, tooltip):
    page = show(comparison(3, 1), PHONE, has_touch=True)
    page.locator("[data-panel] .stage").scroll_into_view_if_needed()
    page.touchscreen.tap(*seen(page)[1]["marks"][8192])
    assert tooltip(page)["curve"] == LABELS[1] and tooltip(page)["at"] == "length 8192 (32× trained)"
    box = page.locator("[data-panel] .tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360
    page.locator(".key[data-curve='1']").tap()
    assert curves_of(page) == [0, 2]


def test_the_command_is_copied(show):
    page = show(comparison(3, 1), permissions=["clipboard-read", "clipboard-write"])
    page.locator(".copy").click()
    page.wait_for_function("document.querySelector('.copy').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#command").text_content()
