"""In a browser: the page can be read on a phone and a desk, in light and dark, on paper, and by all."""

from itertools import pairwise

import pytest
from accessible import DESK, WORDS, assert_accessible, contrast, luminance, over
from accessible import PHONE as WIDE_PHONE
from synthetic import NOT_COMPARABLE, comparison
from test_page import BREAKS_OUT, wicked

from zoo.reports.page import page as page_of

PHONE = {"width": 360, "height": 740}


@pytest.mark.parametrize("curves, panels, seeds", [(3, 2, 3), (12, 4, 1)])
def test_on_a_phone_nothing_is_wider_than_the_screen_or_too_small(show, curves, panels, seeds):
    page = show(comparison(curves, panels, seeds, differences=NOT_COMPARABLE), PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    wide = page.evaluate("""() => [...document.body.querySelectorAll("*")]
        .filter((one) => !one.closest("table") && !one.closest("defs"))
        .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
        .filter(([, box]) => box.width && (box.left < -0.5 || box.right > 360.5)).map(([text]) => text)""")
    assert wide == []
    assert [(text, size) for text, size, *_ in page.evaluate(WORDS) if size < 12] == []
    scale = page.locator(".stage > svg").first.evaluate("svg => svg.getScreenCTM().a")
    assert scale == pytest.approx(1, abs=0.01)  # what is 12 pixels high is drawn so
    for number in range(panels):  # no two labels of an axis run into each other
        boxes = page.locator(f"[data-panel='{number}'] text.length").evaluate_all(
            "all => all.map((one) => one.getBoundingClientRect()).map((b) => [b.left, b.right])"
        )
        assert len(boxes) > 3 and all(one[1] < next[0] for one, next in pairwise(sorted(boxes)))


def test_a_wide_table_moves_in_its_own_frame_and_its_names_stay(show):
    page = show(comparison(6, 4, 1), PHONE)
    table = page.locator(".scroll").nth(3)
    table.evaluate("one => (one.scrollLeft = 400)")
    assert table.evaluate("one => one.scrollLeft") == 400
    left = page.locator(".scroll").first.bounding_box()["x"]
    assert table.locator("tbody th").first.bounding_box()["x"] == pytest.approx(left, abs=1)
    assert table.locator("caption span").bounding_box()["x"] == pytest.approx(left, abs=1)
    assert page.evaluate("scrollX") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_in_light_and_dark(show, seen, scheme):
    page = show(comparison(6, 2, differences=NOT_COMPARABLE), color_scheme=scheme)
    page.locator(".key[data-curve='2']").first.click()
    page.locator(".stage").first.scroll_into_view_if_needed()
    page.mouse.move(*seen(page)[1]["marks"][1024])
    words = page.evaluate(WORDS)
    texts = {text for text, *_ in words}
    assert {"trained", "length (tokens)", "8192", "Show all", "seed 0", "Copy"} <= texts
    for text, _, ink, papers in words:
        assert contrast(ink, papers) >= 4.5, (text, ink, papers)
    behind = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(over(behind, 0)) > 0.5) == (scheme == "light")


def test_paper_is_white_and_has_whole_tables_and_all_plots(show):
    page = show(comparison(3, 2), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".scroll").last.evaluate("one => getComputedStyle(one).overflowX") == "visible"
    assert not page.locator(".copy").is_visible()
    assert page.locator("[data-panel] .stage > svg:visible").count() == 2


def test_on_paper_every_line_is_drawn_every_caveat_read_and_no_column_cut_off(show):
    page = show(comparison(3, 4), viewport={"width": 680, "height": 900})  # A4 between its margins
    page.locator(".key[data-curve='1']").first.click()
    count = (
        """() => [".curve", ".caveats[open]"].map((part) => document.querySelectorAll(part).length).join()"""
    )
    assert page.evaluate(count) == f"{4 * (2 + 1)},0"
    page.evaluate(f"addEventListener('beforeprint', () => (window.printed = ({count})()))")
    page.pdf()
    assert page.evaluate("printed") == f"{4 * (3 + 2)},1"
    page.wait_for_function(f"({count})() === '{4 * (2 + 1)},0'")  # as it was
    page.emulate_media(media="print")
    tables = page.locator("table").evaluate_all(
        "all => all.map((one) => [one.offsetWidth, getComputedStyle(one.parentElement).page])"
    )
    assert len(tables) == 9
    for width, sheet in tables:
        assert width <= (1000 if sheet == "wide" else 680)


def test_nothing_moves_for_a_reader_who_wants_no_motion(show):
    page = show(comparison(3, 1), reduced_motion="reduce")
    moving = page.evaluate("""() => [...document.querySelectorAll("*")].map((one) => getComputedStyle(one))
        .filter((style) => style.transitionDuration !== "0s" || style.animationName !== "none").length""")
    assert moving == 0


def test_everything_that_can_be_reached_has_a_name_and_shows_that_it_was_reached(show):
    page = show(comparison(3, 1))
    names = []
    while True:
        page.keyboard.press("Tab")
        name, outline = page.evaluate("""() => {
            const one = document.activeElement;
            const name = one.ariaLabel || one.textContent.trim();
            return [one === document.body ? null : name, getComputedStyle(one).outlineStyle];
        }""")
        if name is None:
            break
        assert name and outline != "none", name
        names.append(name)
    assert names[0] == "Skip to the results"
    assert names[1].startswith("Plot of bits per byte against length")
    assert names[2:5] == ["alibi", "rope scaling=yarn factor=4", "sinusoidal"]
    assert "Table: nonoverlapping: bits per byte by length in tokens" in names
    assert names[-2:] == ["Copy", "Caveats (1)"]


def test_text_stays_text(show, seen, tooltip):
    page = show(wicked())
    assert page.evaluate("window.broken") is None
    assert page.locator(".key span").first.text_content() == f"0{BREAKS_OUT}"
    # What stands above the plot is long here.
    page.locator(".stage").first.scroll_into_view_if_needed()
    page.mouse.move(*seen(page)[0]["marks"][1024])
    assert tooltip(page)["curve"] == f"0{BREAKS_OUT}"


def test_without_scripts_the_tables_are_there_and_the_plot_says_why_not(show):
    page = show(comparison(3, 1), java_script_enabled=False)
    assert page.locator("table td").first.is_visible()
    assert "needs JavaScript" in page.locator("noscript").text_content()


def test_the_browser_itself_lets_no_other_script_run(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page_of(comparison(1, 1)), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    refused = page.evaluate("""() => new Promise((done) => {
        document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
        const script = document.createElement("script");
        script.textContent = "window.broken = 1";
        document.body.append(script);
        setTimeout(() => done("nothing"), 20000);
    })""")
    assert refused == "script-src-elem" and page.evaluate("window.broken") is None
    page.close()


def test_axe_finds_nothing_on_a_phone(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page_of(comparison(3, 1, differences=NOT_COMPARABLE)), encoding="utf-8")
    assert_accessible(browser, file, [(WIDE_PHONE, "dark")])


@pytest.mark.slow
@pytest.mark.parametrize("curves, panels, seeds", [(1, 1, 1), (12, 4, 3)])
def test_axe_finds_nothing_in_any_light_or_width(browser, tmp_path, curves, panels, seeds):
    file = tmp_path / "page.html"
    file.write_text(page_of(comparison(curves, panels, seeds)), encoding="utf-8")
    assert_accessible(browser, file)


def test_what_keeps_a_reader_out_is_found(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(
        "<title>Bad</title><main><h1>Bad</h1><img src='data:,'><p style='color: #aaa'>faint</p>"
        "<svg role='img' aria-label='a'><text y='20' fill='#bbb'>fainter</text></svg>"
        "<p style='width: 3000px'>wide</p></main>"
    )
    with pytest.raises(AssertionError) as caught:
        assert_accessible(browser, file, [(DESK, "light")])
    for problem in ("image-alt", "html-has-lang", "'faint'", "'fainter'", "scrolls sideways, 30"):
        assert problem in str(caught.value)
