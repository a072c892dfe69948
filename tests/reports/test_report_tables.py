"""The tables: cells, bold values and notes, in Markdown, on a terminal and as CSV."""

import csv
import io
import json
import re

import pytest

from zoo.reports.report import build
from zoo.reports.tables import costs_table, report_page
from zoo.reports.text import console, latex, markdown


def cells(text, title):
    """The cells of the Markdown table under a title, without the heading's line."""
    block = text.split(f"## {title}")[1].split("\n\n")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    return [rows[0], *rows[2:]]


def rows_of(report):
    return [*csv.DictReader(io.StringIO(report.table.to_csv(index=False)))]


def test_a_run_called_like_a_tag_is_text(write_run):
    run = write_run("a", speeds=()).rename("runs/<script>*x*")
    text = markdown(build([run, write_run("b", "rope")]))
    assert "<script>" not in text and "runs/&lt;script&gt;\\*x\\*: no train" in text


def test_a_narrow_terminal_shows_no_intervals(write_run):
    report = build([write_run("a"), write_run("b", "rope", values={16: 1.5, 32: 1.7})])
    wide, narrow = (console(report, width) for width in (200, 40))
    rows = [re.split("  +", line) for text in (wide, narrow) for line in text.splitlines()]
    assert ["alibi", "1.500 (1.454–1.546)", "1.600 (1.551–1.649)"] in rows and "too narrow" in narrow
    assert ["encoding", "16 (trained)", "32"] in rows and ["alibi", "1.500", "1.600"] in rows


def test_the_latex_tables_hold_the_values_intervals_and_ties_of_the_csv_file(write_run):
    runs = [write_run(n, e) for n, e in (("a", "alibi"), ("b", {"name": "heads", "of": ["alibi", "none"]}))]
    report = build([*runs, write_run("c", "rope", values={16: 2.5, 32: 2.6})])
    text = latex(report)
    assert not re.search(r"(?<!\\)[_#]", text.partition("\\begin")[2]) and "–" not in text
    for columns, body in re.findall(r"\\begin{tabular}{(l[r]*)}(.*?)\\end{tabular}", text, re.DOTALL):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {len(columns)}
    values, differences = text.split(r"\begin{table}")[1:3]
    for row in rows_of(report):
        interval = f"({float(row['low']):.3f}--{float(row['high']):.3f})"
        assert f"{float(row['mean']):.3f} {interval}" in values
    assert differences.count(") tied") == 2 and r"1=" in differences


def test_the_choice_from_a_grid_is_in_the_table_and_in_the_csv_file(write_run):
    grid, runs = {"optimizer.lr": [0.001, 0.003]}, []
    losses = {"optimizer.lr=0.001": {"0": 1.0, "1": 4.0}, "optimizer.lr=0.003": {"0": 2.0, "1": 2.0}}
    for encoding in ("alibi", "rope"):
        runs.append(write_run(encoding, encoding, recipe={"optimizer.lr": 0.003}))
        tuned = {"grid": grid, "chosen": ["optimizer.lr=0.003"], "by": "val/loss", "losses": losses}
        (runs[-1] / "tuned.json").write_text(json.dumps(tuned))
    report = build(runs)
    header, *rows = cells(markdown(report), "Tuning")
    assert header[1:] == ["chosen", *losses]
    shown = ["optimizer.lr=0.003", "2.500 (0: 1.000, 1: 4.000)", "**2.000 (0: 2.000, 1: 2.000)**"]
    assert rows == [["alibi", *shown], ["rope", *shown]] and "Tuning" in report_page(report)
    for row in rows_of(report):
        assert row["tuned"] == "optimizer.lr=0.003"
        assert json.loads(row["tuned_losses"]) == losses and json.loads(row["tuned_grid"]) == grid


@pytest.mark.parametrize("work", ["training", "evaluation"])
def test_different_machines_have_a_column(write_run, row_of, work):
    def costs(*machines):
        runs = []
        for encoding, machine in zip(("alibi", "rope", "none"), machines, strict=True):
            names = {"machine": machine}

            def rows(recipe, own=names if work == "evaluation" else {}):
                return [row_of(recipe, 64, 1.5, **own)]

            card = names if work == "training" else {}
            runs.append(write_run(f"{encoding}{len(set(machines))}", encoding, rows=rows, card=card))
        (table,) = costs_table(build(runs))
        return table

    several, one = costs("1 x H100", "1 x H200", "1 x H100"), costs(*["1 x H100"] * 3)
    assert several.cells[f"{work} on"].to_dict() == {
        "alibi": "1 x H100",
        "rope": "1 x H200",
        "none": "1 x H100",
    }
    assert f"{work} on" not in one.cells and f"{work} on 1 x H100" in one.notes[0]
