"""A real browser: one headless Chromium for each process of tests."""

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REQUIRED = "ZOO_REQUIRE_BROWSER"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def missing(what: str):
    """Skip, or fail where a browser is promised."""
    (pytest.fail if os.environ.get(REQUIRED) == "1" else pytest.skip)(what)


@pytest.fixture(scope="session")
def browser():
    """Chromium from the PATH, without a window and with a new profile."""
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
