"""Whether a page can be read by all: axe-core finds nothing, no text is faint, nothing scrolls sideways.

    from accessible import assert_accessible

    def test_my_page(browser, tmp_path):
        assert_accessible(browser, write_my_page(tmp_path / "page.html"))

The fixture `browser` is that of tests/browser.py.
"""

import re
from itertools import product
from pathlib import Path

import numpy as np
from browser import missing

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
EVERYWHERE = tuple(product((DESK, PHONE), ("light", "dark")))
OPTIONS = {
    "resultTypes": ["violations"],
    "preload": False,  # no style of ours comes from elsewhere
    "elementRef": False,
}
OPEN = "() => document.querySelectorAll('details').forEach((part) => (part.open = true))"
WORDS = """() => {
    const sheet = document.createElement("i"), found = [];
    sheet.style.background = "Canvas";  // what is behind a page without a background
    document.body.append(sheet);
    const canvas = getComputedStyle(sheet).backgroundColor;
    sheet.remove();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode.textContent.trim();
        const one = walker.currentNode.parentElement;
        if (!text || !one.checkVisibility({ checkVisibilityCSS: true })) continue;
        if (!one.getClientRects().length || one.closest("script, style, defs, noscript")) continue;
        const papers = [];
        for (let behind = one; behind; behind = behind.parentElement) {
            papers.push(getComputedStyle(behind).backgroundColor);
        }
        const style = getComputedStyle(one);
        const ink = one.namespaceURI.endsWith("svg") ? style.fill : style.color;
        found.push([text, parseFloat(style.fontSize), ink, [...papers, canvas]]);
    }
    return found;
}"""
"""All text that is seen: itself, its size in pixels, its colour, and those behind it, the nearest first."""
WIDER = """(width) => [...document.body.querySelectorAll("*")]
    .filter((one) => one.getBoundingClientRect().right > width + 0.5)
    .map((one) => one.outerHTML.slice(0, 80))"""


def assert_accessible(browser, file, everywhere=EVERYWHERE):
    """Opens a page from its file at each size of `everywhere`, in light and dark, and fails with all that is
    wrong with it: what axe-core finds (all of its rules, best practices included), text of less contrast
    than WCAG 2.2 asks for (1.4.3; axe-core leaves open what lies on a picture), sideways scrolling (1.4.10).
    """
    found = {
        f"{viewport['width']} px, {scheme}: {problem}": None
        for viewport, scheme in everywhere
        for problem in problems(browser, file, viewport, scheme)
    }
    assert not found, "\n".join([f"{file}:", *found])


def problems(browser, file, viewport, scheme):
    """What is wrong with a page at a size and in a colour scheme, as lines of text."""
    try:
        from axe_playwright_python.base import AXE_SCRIPT
    except ImportError:
        missing("no axe-core; install it with: pip install axe-playwright-python")
    context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    context.set_default_timeout(120_000)  # a loaded machine is slow and not wrong
    try:
        page = context.new_page()
        page.goto(Path(file).resolve().as_uri())
        page.evaluate(OPEN)
        # In the frame of the tool, and not as a script of the page, which its policy would refuse.
        page.evaluate(AXE_SCRIPT)
        for one in page.evaluate("(options) => axe.run(options)", OPTIONS)["violations"]:
            for node in one["nodes"]:
                yield f"{one['id']}: {one['help']}: {node['html'][:160]}"
        for text, size, ink, papers in page.evaluate(WORDS):
            if (ratio := contrast(ink, papers)) < (3 if size >= 24 else 4.5):
                yield f"contrast {ratio:.2f}: {text[:80]!r}, {ink}"
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > viewport["width"]:
            yield f"scrolls sideways, {width} px: {page.evaluate(WIDER, viewport['width'])[:5]}"
    finally:
        context.close()


def contrast(ink: str, papers: list[str]) -> float:
    """WCAG 2.2's contrast ratio of a text's colour to those behind it, each as a browser writes it."""
    behind = np.zeros(3)
    for paper in reversed(papers):
        behind = over(paper, behind)
    dark, light = sorted((luminance(over(ink, behind)), luminance(behind)))
    return (light + 0.05) / (dark + 0.05)


def over(colour: str, behind: np.ndarray) -> np.ndarray:
    """What is seen of a colour, `rgb(1, 2, 3)` or with an alpha, on another: parts from 0 to 1."""
    parts = [float(part) for part in re.findall(r"[\d.]+", colour)]
    assert colour.startswith("rgb") and len(parts) in (3, 4), colour
    alpha = parts[3] if len(parts) == 4 else 1
    return alpha * np.array(parts[:3]) / 255 + (1 - alpha) * behind


def luminance(colour: np.ndarray) -> float:
    """WCAG 2.2's relative luminance."""
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]
