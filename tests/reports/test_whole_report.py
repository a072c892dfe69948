"""Every number in the tables of a whole comparison, and of a run's own report."""

import csv
import io

import numpy as np
import pytest
from measured import measurements_of
from rows import task_row, text_row

from zoo.evaluation.measurement import flat_rows
from zoo.reports.evaluate import rows_as_csv
from zoo.reports.report import build, run_report
from zoo.reports.text import markdown


@pytest.fixture
def report(write_run, row_of):
    """Two seeds of two encodings, and one that ends at the trained length; two protocols, one of them of one
    length, and a run that lacks a length."""
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
    return build(runs)


def markdown_tables(text):
    """The rows of each table by its heading; the cells without bold."""
    tables, heading = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").split(" by length")[0]
        elif line.startswith("|") and not line.startswith("| ---"):
            cells = [cell.strip().replace("**", "") for cell in line.strip("|").split("|")]
            tables.setdefault(heading, []).append(cells)
    return tables


COMPARISON = {
    "Verdict by bits per byte under nonoverlapping": [
        ["", "16 tokens (trained)", "64 tokens"],
        ["best", "alibi", "alibi"],
        ["tied with", "–", "rope 0.000 (0.000 to 0.000)"],
        ["ahead of", "rope +0.037 (+0.036 to +0.038), learned +0.066 (+0.064 to +0.068)", "–"],
        ["without a value", "–", "learned"],
    ],
    "nonoverlapping: bits per byte": [
        ["encoding", "16 (trained)", "32", "64"],
        ["alibi", "1.534 (1.486–1.581)", "1.514 (1.467–1.561)", "2.000 (1.938–2.062)¹"],
        ["rope", "1.571 (1.522–1.620)", "1.982 (1.921–2.043)", "2.000 (1.938–2.062)¹"],
        ["learned", "1.600 (1.551–1.649)", "–²", "–³"],
    ],
    "nonoverlapping: difference to alibi": [
        ["encoding", "16 (trained)", "32", "64", "rank at 16", "rank at 64"],
        ["alibi", "reference", "reference", "reference", "1", "1="],
        ["rope", "+0.037 (+0.036 to +0.038)", "+0.468 (+0.453 to +0.482)", "0.000 (0.000 to 0.000) tied",
         "2", "1="],
        ["learned", "+0.066 (+0.064 to +0.068)", "–", "–", "3", "–"],
    ],
    "sliding (stride 0.5): bits per byte": [
        ["encoding", "32"],
        ["alibi", "1.500 (1.454–1.546)"],
        ["rope", "1.500 (1.454–1.546)"],
    ],
    "sliding (stride 0.5): difference to alibi": [
        ["encoding", "32", "rank at 32"],
        ["alibi", "reference", "1="],
        ["rope", "0.000 (0.000 to 0.000) tied", "1="],
    ],
    "Costs": [
        ["encoding", "added parameters", "parameters", "training tokens/s", "evaluation tokens/s at 16",
         "peak memory at 16 (MiB)"],
        ["alibi", "0", "1,000", "100", "1,016", "116"],
        ["rope", "0", "1,000", "100", "1,016", "116"],
        ["learned", "0", "1,000", "100", "1,016", "116"],
    ],
}  # fmt: skip


def test_the_tables_of_a_comparison(report):
    assert markdown_tables(markdown(report)) == COMPARISON


RUN = [
    *(text_row(n, v) for n, v in ((32, 1.75), (64, 1.5), (128, None))),
    text_row(256, note="the encoding ends at 128 tokens"),
    *(task_row(n, v) for n, v in ((64, 1.0), (128, 0.25))),
    text_row(512, note="too long", protocol="per_position", parameters={"window": 512}),
]


def test_the_tables_of_a_run(tmp_path):
    report = run_report(tmp_path, measurements_of(RUN))
    assert markdown_tables(markdown(report)) == {
        "accuracy: accuracy": [
            ["encoding", "64 (trained)", "128", "effective length"],
            ["alibi", "1.000 (0.950–1.000)", "0.250 (0.200–0.300)", "64"],
            ["token accuracy", "1.000", "0.625", "–"],
        ],
        "nonoverlapping: bits per byte": [
            ["encoding", "32", "64 (trained)", "128"],
            ["alibi", "1.750 (1.650–1.850)", "1.500 (1.400–1.600)", "–¹"],
            ["loss in nats", "3.500", "3.000", "–"],
            ["perplexity", "17.50", "15.00", "–"],
            ["tokens/s", "12,346", "12,346", "12,346"],
            ["peak memory (MiB)", "789", "789", "789"],
        ],
    }  # fmt: skip
    caveats = " ".join(report.caveats)
    assert "the encoding ends at 128 tokens" in caveats and "too long" in caveats


def test_the_rows_of_a_run_keep_their_values():
    rows = flat_rows(measurements_of(RUN))
    written = [*csv.DictReader(io.StringIO(rows_as_csv(rows)))]
    assert len(written) == len(rows) == 7
    for row, cells in zip(rows, written, strict=True):
        assert row.keys() <= cells.keys()
        for key, cell in cells.items():
            value = row.get(key)
            if isinstance(value, int | float):
                assert float(cell) == value, key
            elif key != "parameters":
                assert cell == (value or ""), key
