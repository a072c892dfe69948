"""A real browser: one headless Chromium for each process of tests."""

import os
import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REQUIRED = "ZOO_REQUIRE_BROWSER"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def missing(what: str):
    """Skip the test, or fail it where ZOO_REQUIRE_BROWSER=1."""
    (pytest.fail if os.environ.get(REQUIRED) == "1" else pytest.skip)(what)


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium from the PATH, with a new profile."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing("no Chromium on the PATH; on Debian: apt-get install -y chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("no playwright; install it with: pip install playwright")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture
def open_page(browser):
    """Open a page from disk, 390 px wide.

    Fails if it logs an error, loads anything but files, or scrolls sideways.
    """
    contexts, errors, requests = [], [], []

    def open_page(file):
        context = browser.new_context(viewport={"width": 390, "height": 844})
        contexts.append(context)
        context.set_default_timeout(120_000)  # on a loaded machine
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(Path(file).resolve().as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
