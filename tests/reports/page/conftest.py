"""The page of a comparison in a real browser."""

import math

import numpy as np
import pytest

from zoo.reports.page import page as page_of

DESK = {"width": 1280, "height": 900}


@pytest.fixture
def show(browser, tmp_path):
    """Open a comparison from a file. In the end no error was logged, and only the file was asked for."""
    contexts, said, asked = [], [], []

    def show(made, viewport=DESK, **settings):
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(page_of(made), encoding="utf-8")
        contexts.append(browser.new_context(viewport=viewport, **settings))
        contexts[-1].set_default_timeout(120_000)  # a loaded machine is slow and not wrong
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        return page

    yield show
    for context in contexts:
        context.close()
    assert said == []
    assert {url for url in asked if url != "data:,"} <= {path.as_uri() for path in tmp_path.iterdir()}


@pytest.fixture
def seen():
    """What a panel has drawn: its curves' marks and seeds, in pixels of the screen.

    `seen(page, panel)` gives by curve `marks` {length: (x, y)}, `beyond` [length] and `seeds` [(x, y)].
    """
    script = """(panel) => Object.fromEntries(
        [...document.querySelectorAll(`[data-panel="${panel}"] .curve`)].map((curve) => {
            const at = (one) => { const m = one.getScreenCTM(); return [m.e, m.f]; };
            const middle = (one) => {
                const b = one.getBoundingClientRect();
                return [(b.left + b.right) / 2, (b.top + b.bottom) / 2];
            };
            const all = (name) => [...curve.querySelectorAll(name)];
            return [curve.dataset.curve, {
                marks: Object.fromEntries(all(".mark").map((one) => [one.dataset.length, at(one)])),
                beyond: Object.fromEntries(all(".beyond").map((one) => [one.dataset.length, at(one)])),
                seeds: all(".seed").map(middle),
            }];
        }))"""

    def seen(page, panel=0):
        return {
            int(curve): {
                "marks": {int(n): tuple(at) for n, at in drawn["marks"].items()},
                "beyond": {int(n): tuple(at) for n, at in drawn["beyond"].items()},
                "seeds": drawn["seeds"],
            }
            for curve, drawn in page.evaluate(script, panel).items()
        }

    return seen


@pytest.fixture
def axes():
    """Length and value to pixels of the screen, from nothing but where the labels of the axes stand."""
    script = """(panel) => ["text.length", "text.value", "line.grid"].map((name) =>
        [...document.querySelectorAll(`[data-panel="${panel}"] ${name}`)].map((one) => {
            const b = one.getBoundingClientRect();
            return [one.textContent, (b.left + b.right) / 2, (b.top + b.bottom) / 2];
        }))"""

    def axes(page, panel=0):
        lengths, values, lines = page.evaluate(script, panel)
        across = np.polyfit([math.log2(int(text)) for text, _, _ in lengths], [x for _, x, _ in lengths], 1)
        values = [float(text.replace("−", "-")) for text, _, _ in values]
        up = np.polyfit(values, [y for _, _, y in lines], 1)
        return lambda length: np.polyval(across, math.log2(length)), lambda value: np.polyval(up, value)

    return axes


@pytest.fixture
def tooltip():
    """What the tooltip of a panel says: `at`, the value of each curve by label, `curve`, the one that is
    meant, and its details by name; empty where it is hidden."""
    script = """(panel) => {
        const tip = document.querySelector(`[data-panel="${panel}"] .tip`);
        if (!tip.checkVisibility()) return {};
        const cells = (row) => [...row.querySelectorAll("span")].map((cell) => cell.textContent);
        const rows = [...tip.querySelectorAll("div")].map(cells);
        const curve = tip.querySelector(".now span").textContent;
        return { at: tip.querySelector("b").textContent, curve, ...Object.fromEntries(rows) };
    }"""
    return lambda page, panel=0: page.evaluate(script, panel)
