"""The report of a single run: on the console, as a page and as lengths.csv."""

from cells import column
from measured import measurements_of
from rows import text_row

from zoo.evaluation.store import read_measurements
from zoo.reports.report import run_report
from zoo.reports.tables import report_page as page
from zoo.reports.text import console


def test_rows_on_other_targets_have_tables_of_their_own(tmp_path):
    rows = [text_row(64), text_row(64, 1.4, targets="ffffff", documents=3)]
    text = console(run_report(tmp_path, measurements_of(rows)))
    assert text.count("nonoverlapping: bits per byte") == 2
    assert "documents: 8" in text and "documents: 3" in text


def test_checkpoints_of_one_folder_are_curves_of_their_own(tmp_path):
    best = [text_row(n, 1.25, checkpoint="checkpoints/best.ckpt") for n in (64, 128)]
    (panel,) = run_report(tmp_path, measurements_of([text_row(64), text_row(128), *best])).panels
    assert column(panel, "alibi (best.ckpt)") == [1.25, 1.25] and len(panel) == 4
    assert column(panel, "alibi (last.ckpt)") == [1.5, 1.5]


def test_the_page_of_a_run_has_costs_and_no_verdict(write_run):
    folder = write_run("a", values={16: 1.5, 32: 1.6, 64: "too long"})
    report = run_report(folder, read_measurements(folder))
    assert report.about["steps"] == "6" and report.costs["training_tokens_per_second"].tolist() == [100]
    assert any("too long" in caveat for caveat in report.caveats)
    text = page(report)
    assert "1.600" in text and "Costs" in text
    body = text.split("<body>")[1]
    assert not any(absent in body for absent in ("Verdict", "How to reproduce"))


def test_two_ways_to_read_a_checkpoint_are_compared_on_its_page(tmp_path):
    other = [text_row(n, 1.25, encoding="alibi slopes=x", changed={"slopes": "x"}) for n in (64, 128)]
    report = run_report(tmp_path, measurements_of([text_row(64), text_row(128), *other]))
    assert report.panels[0]["encoding"].unique().tolist() == ["alibi slopes=x", "alibi"]
    assert "Verdict" in page(report)
    assert not len(report.costs)  # its card is gone
