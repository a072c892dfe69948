"""The page of clouds in a real browser: turned by pointer, keys and slider; nothing is fetched."""

import numpy as np
import pytest
from accessible import assert_accessible

from zoo.figures.tokens import draw_tokens

SPECS = [{"name": name} for name in ("sinusoidal", "rope", "alibi")]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "x.html"
    draw_tokens(SPECS, text="the <b>cat</b> sat </script> on the mat").save(file)
    return file


@pytest.fixture
def show(browser, file):
    """Open the page. In the end no error was logged, and only the file was asked for."""
    contexts, said, asked = [], [], []

    def show(width=1280, **settings):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **settings))
        page = contexts[-1].new_page()
        page.set_default_timeout(120_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        return page

    yield show
    for context in contexts:
        context.close()
    assert said == [] and {url for url in asked if url != "data:,"} == {file.as_uri()}


def dots(page, cloud):
    return page.eval_on_selector_all(
        f".clouds figure:nth-child({cloud + 1}) circle",
        "all => all.map(one => [one.cx, one.cy].map(at => at.baseVal.value)).sort((a, b) => a[0] - b[0])",
    )


@pytest.mark.slow
def test_it_is_turned_by_keys_pointer_and_slider(show):
    from playwright.sync_api import expect

    page = show()
    assert page.locator(".cloud").count() == 3 and len(dots(page, 0)) == 7
    before = dots(page, 1)
    page.locator(".cloud").first.focus()
    page.keyboard.press("ArrowRight")
    by_key = dots(page, 1)
    assert by_key != before  # all turn together
    box = page.locator(".cloud").nth(1).bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 120, steps=3)
    page.mouse.up()
    assert dots(page, 1) != by_key
    with_position = [dots(page, cloud) for cloud in range(3)]
    page.locator("#share").fill("0")
    without = [dots(page, cloud) for cloud in range(3)]
    np.testing.assert_allclose(without[1:], [without[0]] * 2, atol=0.05)
    assert [one != other for one, other in zip(with_position, without, strict=True)] == [True, True, False]
    page.locator("#play").click()
    expect(page.locator("#share")).to_have_value("100")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_has_its_points_as_tables(show, scheme):
    page = show(390, color_scheme=scheme, reduced_motion="reduce")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#play").click()
    assert page.locator("#share").input_value() == "0"  # at once, without motion
    page.locator("summary").first.click()
    assert page.locator("table").first.locator("tbody tr").count() == 7
    assert "<b>cat</b>" in page.locator("table").first.inner_text()


@pytest.mark.slow
def test_axe_finds_nothing(browser, file):
    assert_accessible(browser, file)
