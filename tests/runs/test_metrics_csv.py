"""metrics.csv grows by a line at a time: of a file that is cut off, the complete lines are read."""

import pytest

from zoo.comparison.runs import training_speed
from zoo.errors import InputError
from zoo.runs.metrics_csv import read_metrics
from zoo.training.loggers import CsvLog

LOGGED = [
    {"step": step, "train/loss": 5.25 / step, "train/tokens_per_second": 100.5 + step, "größe": step * 11}
    for step in (2, 4, 6, 8)
]


def write(folder, rows, keep_to_step=0):
    folder.mkdir(exist_ok=True)
    log = CsvLog(folder, keep_to_step)
    for row in rows:
        log.log_metrics({key: value for key, value in row.items() if key != "step"}, row["step"])
    return (folder / "metrics.csv").read_bytes()


def test_a_file_cut_at_any_byte_has_its_complete_lines(tmp_path):
    raw = write(tmp_path / "whole", LOGGED)
    columns, rows = read_metrics(tmp_path / "whole/metrics.csv")
    assert columns == list(LOGGED[0])
    assert rows == [{key: str(value) for key, value in row.items()} for row in LOGGED]
    file = tmp_path / "cut.csv"
    for length in range(len(raw) + 1):
        file.write_bytes(raw[:length])
        whole = max(0, raw[:length].count(b"\n") - 1)
        assert read_metrics(file) == (columns if b"\n" in raw[:length] else [], rows[:whole])
        assert training_speed(rows[:whole]) in (None, 102.5, 103.5, 104.5, 105.5)
        assert (training_speed(rows[:whole]) is None) == (not whole)


def test_a_run_that_goes_on_from_a_cut_file_has_all_lines(tmp_path):
    raw = write(tmp_path / "whole", LOGGED)
    folder = tmp_path / "cut"
    folder.mkdir()
    # The checkpoint is of step 4, so the rows up to step 4 are in the file.
    begin = raw.index(b"\r\n6,") + 2
    for length in range(begin, len(raw) + 1):
        (folder / "metrics.csv").write_bytes(raw[:length])
        assert write(folder, LOGGED[2:], keep_to_step=4) == raw


def test_no_file_is_no_row(tmp_path):
    assert read_metrics(tmp_path / "metrics.csv") == ([], [])


@pytest.mark.parametrize("raw, message", [
    (b"step,a\r\n1,2\r\n3\r\n5,6\r\n", "is shorter than argument 1"),
    (b"a,b\r\n1,2\r\n", "it does not begin with step"),
    (b"step,a\r\n1,\xff\r\n", "can't decode byte 0xff"),
])  # fmt: skip
def test_a_file_that_no_run_has_written_is_reported_and_stays(tmp_path, raw, message):
    (tmp_path / "metrics.csv").write_bytes(raw)
    with pytest.raises(InputError) as caught:
        CsvLog(tmp_path, keep_to_step=4)
    assert str(caught.value).startswith(f"{tmp_path}/metrics.csv: ") and message in str(caught.value)
    assert (tmp_path / "metrics.csv").read_bytes() == raw
