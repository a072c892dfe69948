"""The whole gallery: every plugin has its page, and a real browser opens it from disk."""

from pathlib import Path

import pytest
from browser import missing
from built_site import broken_links, loaded_from_elsewhere, pages_of, words_of

from zoo.cli import main
from zoo.registry import KINDS

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("gallery") / "site"
    assert main(["gallery", "--out", str(out)]) == 0
    return out


def test_every_plugin_has_its_page(site):
    assert not [*broken_links(site)] and not [*loaded_from_elsewhere(site)]
    pages = pages_of(site)
    folders = {"encoding": "encodings", "task": "tasks", "protocol": "protocols", "dataset": "datasets"}
    for kind, folder in folders.items():
        for name, one in KINDS[kind].shipped.items():
            shown = pages[Path(folder, f"{name}.html")].text
            plain = words_of(shown)
            for option in one.options:
                assert option.name in plain, (name, option.name)
            if kind == "encoding":
                assert ("for models that were trained with another" in plain) == bool(one.replaces), name
                assert ("<math" in shown and "Proven against" in shown) or name == "none", name
                assert "Costs" in plain, name
            if kind == "dataset" and one.source.startswith("generated"):
                assert 'class="example"' in shown, name
    for page in ("choose", "add", "api", "tour"):
        assert f"{page}.html" in pages[Path("index.html")].links, page
    for name in ("my_encoding.py", "modular_sum", "window_ends", "inverse_root"):
        assert name in words_of(pages[Path("add.html")].text), name
    for name in ("open_run", "rotate", "bias_table", "position_key"):
        assert name in pages[Path("api.html")].text, name
    assert (site / "tour.ipynb").read_bytes() == (ROOT / "docs" / "tour.ipynb").read_bytes()


@pytest.fixture
def opened(browser, site):
    """Open a page of the site. In the end no error was logged, and nothing but files was asked for."""
    contexts, said, asked = [], [], []

    def opened(path, width=1280, **settings):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **settings))
        contexts[-1].set_default_timeout(120_000)
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / path).as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert said == [] and [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


PAGES = ("index.html", "encodings/rope.html", "encodings/fire.html", "choose.html", "api.html", "add.html",
         "protocols/sliding.html", "datasets/needle.html")  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_wider_than_a_phone(opened, path):
    page = opened(path, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_formula_is_drawn(opened):
    page = opened("encodings/fire.html")
    fractions = page.evaluate("[...document.querySelectorAll('math mfrac')].map((one) => one.clientHeight)")
    assert fractions and min(fractions) > 20


def test_the_table_is_sorted_by_a_click(opened):
    page = opened("index.html")
    column = "[...document.querySelectorAll('.sortable tbody tr')].map((row) => row.cells[6].textContent)"
    heading = page.get_by_role("button", name="step")
    heading.click()
    rising = page.evaluate(column)
    assert [float(one) for one in rising] == sorted(float(one) for one in rising)
    heading.press("Enter")
    assert page.evaluate(column)[0] == max(rising)
    sorts = "[...document.querySelectorAll('.sortable th')].map((one) => one.getAttribute('aria-sort'))"
    assert page.evaluate(sorts) == [None] * 6 + ["descending", None]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing(opened, path, scheme):
    try:
        import axe_playwright_python
    except ImportError:
        missing("no axe-core; install it with: pip install axe-playwright-python")
    page = opened(path, color_scheme=scheme)
    page.wait_for_timeout(200)  # the theme fades in
    page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text())
    found = page.evaluate("axe.run({ preload: false }).then((done) => done.violations)")
    assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == []
