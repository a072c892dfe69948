"""The pages of compare and of a run in a real browser (`open_page` checks errors, requests and width)."""

import pytest

from zoo.evaluation.store import read_measurements
from zoo.reports.compare import write_report
from zoo.reports.evaluate import show_results
from zoo.reports.report import build


@pytest.mark.slow
def test_the_page_of_a_comparison_draws_its_curves(write_run, open_page):
    runs = [write_run("a"), write_run("b", "rope", values={16: 1.2, 32: 1.9}), write_run("c", "rope", seed=1)]
    write_report(build(runs), write_run("d").parent.parent / "comparison")
    page = open_page("comparison/index.html")
    assert page.locator(".scatterlayer .trace path.js-line").count() >= 3
    page.locator(".legendtoggle").first.click()


@pytest.mark.slow
def test_the_page_of_a_run_draws_its_curve(write_run, open_page, drawn):
    run = write_run("a")
    show_results(run, read_measurements(run))
    page = open_page(run / "evaluation" / "index.html")
    assert page.locator("figure img").evaluate("one => one.naturalWidth") > 100
    assert (run / "evaluation" / "index.html").stat().st_size < 200_000
