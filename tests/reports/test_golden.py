"""A whole report as each renderer writes it; ZOO_WRITE_GOLDEN=1 writes the files of golden/ anew."""

import re
from dataclasses import replace

import numpy as np
import pytest

from zoo.reports.compare import build
from zoo.reports.csv_export import as_csv
from zoo.reports.page import page
from zoo.reports.text import console, markdown


@pytest.fixture
def report(write_run, row_of):
    """Two seeds of two encodings, and one that ends at the trained length; two protocols, one of them of one
    length, a speed measured on a busy machine, and a run that lacks a length."""
    rng = np.random.default_rng(0)

    def sliding(recipe):
        return [row_of(recipe, 32, 1.5, "sliding", {"stride": 0.5})]

    runs = [
        write_run(
            f"{encoding}_{seed}", encoding, seed,
            {16: 1.5 + rng.uniform(0, 0.1), 32: loss + rng.uniform(0, 0.1), **({64: 2.0} if seed else {})},
            rows=sliding,
        )
        for encoding, loss in (("alibi", 1.5), ("rope", 1.9)) for seed in (0, 1)
    ]  # fmt: skip
    runs.append(write_run("learned", "learned", values={16: 1.6, 32: "the encoding ends at 16 tokens"}))
    made = build(runs)
    costs = [replace(cost, busy=cost.label == "rope") for cost in made.costs]
    return replace(made, costs=tuple(costs))


def skeleton(html):
    """The elements of a page and their text, without style, script and data."""
    html = re.sub(r"<(style|script)[^>]*>.*?</\1>", "", html, flags=re.DOTALL)
    html = re.sub(r"<(?:svg|line|use|path|meta|link)\b[^>]*>|</(?:svg|defs)>|<defs>", "", html)
    return re.sub(r"\n\s*\n+", "\n", html)


@pytest.mark.parametrize("name, write", [
    ("report.txt", console),
    ("report.md", markdown),
    ("report.csv", as_csv),
    ("report.html", lambda report: skeleton(page(report))),
    ("verdict.txt", lambda report: report.verdict),
])  # fmt: skip
def test_a_report(report, golden, name, write):
    golden(name, write(report))
