"""Results on the console."""

import sys

import pytest
from rows import task_row, text_row

from zoo.evaluation.tables import rows_as_text, summary_line


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of some width."""

    def terminal(columns):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")

    return terminal


def test_a_table_for_each_protocol_with_its_parameters():
    rows = [text_row(64, 1.25), text_row(128, None)]
    rows.append(text_row(128, protocol="sliding", parameters={"stride": 0.5}))
    assert rows_as_text(rows).splitlines() == [
        "nonoverlapping: 4,096 tokens of 8 documents",
        "encoding  length      bits per byte  95 % interval  perplexity  loss nats  tokens/s  MB",
        "alibi     64 trained  1.250          1.150, 1.350   12.50       2.500      12,346    789",
        "alibi     128 2x      not finite                                           12,346    789",
        "",
        "sliding (stride 0.5): 4,096 tokens of 8 documents",
        "encoding  length  bits per byte  95 % interval  perplexity  loss nats  tokens/s  MB",
        "alibi     128 2x  1.500          1.400, 1.600   15.00       3.000      12,346    789",
    ]


@pytest.mark.parametrize("asked", [[256, 64, 128], [32, 128, 256, 64, 128]])
def test_lengths_stand_in_the_order_asked_for(asked):
    rows = [text_row(length, seed=seed) for length in (64, 128, 256) for seed in (0, 1)]
    lines = rows_as_text(rows, asked).splitlines()[2:]
    order = [length for length in dict.fromkeys(asked) if length != 32]
    assert [(line.split()[1], line.split()[3]) for line in lines] == [
        (str(length), seed) for length in order for seed in "01"
    ]
    many = [text_row(length) for length in range(64, 64 + 12)]
    down = list(range(75, 63, -1))
    assert [line.split()[0] for line in rows_as_text(many, down).splitlines()[3:15]] == [str(n) for n in down]


def test_lengths_that_nobody_asked_for_ascend():
    """As the bins of a window do, of which some may be among the lengths."""
    lines = rows_as_text([text_row(length) for length in (16, 32, 64)], [64, 16]).splitlines()[2:]
    assert [line.split()[1] for line in lines] == ["16", "32", "64"]


def test_a_count_that_changes_is_a_column():
    text = rows_as_text([task_row(64), task_row(128, examples=7)])
    assert text.splitlines()[0] == "accuracy"
    assert [line.split()[-1] for line in text.splitlines()[1:]] == ["examples", "100", "7"]


def test_what_could_not_be_measured_is_told_once():
    rows = [text_row(64), text_row(128, note="too long"), text_row(256, note="too long")]
    lines = rows_as_text(rows).splitlines()
    assert [line.split()[3] for line in lines[3:5]] == ["–", "–"]
    assert lines[5:] == ["alibi: not at 128, 256: too long"]
    assert rows_as_text([text_row(note="no")]).splitlines()[-1] == "alibi: not at 64: no"


def test_what_training_may_have_seen_is_told_below():
    rows = [task_row(64, seen_in_training=1.0), task_row(128, seen_in_training=0.0)]
    assert (
        rows_as_text(rows).splitlines()[-1].startswith("training may have seen 100% of what is scored at 64:")
    )
    assert "seen" not in rows_as_text(rows[1:])


def test_runs_and_seeds_are_told_apart():
    rows = [task_row(64), task_row(64, seed=1, run="tiny-2")]
    lines = [line.split() for line in rows_as_text(rows).splitlines()]
    assert lines[1][:5] == ["run", "encoding", "length", "seed", "accuracy"]
    assert [line[:5] for line in lines[2:]] == [
        ["tiny", "alibi", "64", "trained", "0"],
        ["tiny-2", "alibi", "64", "trained", "1"],
    ]


@pytest.mark.parametrize("columns", [50, 70, 90])
def test_it_fits_the_terminal(terminal, columns):
    terminal(columns)
    rows = [text_row(n, 9.0, encoding=e) for e in ("alibi", "sinusoidal") for n in (64, 128)]
    lines = rows_as_text(rows).splitlines()
    assert max(map(len, lines)) <= columns and not any("…" in line for line in lines)
    assert "bits per byte" in lines[1] and ("perplexity" in lines[1]) == (columns > 70)


@pytest.mark.parametrize("columns, tables", [(45, 2), (61, 2), (62, 1), (200, 1)])
def test_many_lengths_are_lines_and_every_curve_is_there(terminal, columns, tables):
    names = ["alibi", "rope", "sinusoidal", "transformer_xl", "t5"]
    lengths = [2**n for n in range(2, 15)]
    rows = [text_row(n, n / 100, encoding=e, protocol="per_position") for e in names for n in lengths]
    terminal(columns)
    text = rows_as_text(rows)
    assert max(map(len, text.splitlines())) <= columns and "…" not in text
    assert all(f" {name}" in text for name in names) and text.count("163.8") == len(names)
    assert text.count("\n64 trained") == text.count("\nMB ") == tables


def test_few_curves_keep_their_interval():
    rows = [text_row(2**n, 1.5, protocol="per_position") for n in range(2, 15)]
    rows += [text_row(2**15, protocol="per_position", note="too long")]
    text = rows_as_text(rows)
    assert "\n128 2x      1.500 [1.400, 1.600]\n" in text and "\n32768 512x  –\n" in text
    assert text.endswith("alibi: not at 32768: too long")


def test_the_summary_takes_what_there_is():
    note = task_row(64, note="the encoding ends at 8 tokens")
    right = task_row(128, value=0.5)
    assert summary_line([note, {**note, "length": 256}, right]) == (
        "accuracy: 0.500 at 128 (2x); not at 64, 256: the encoding ends at 8 tokens"
    )
    assert summary_line([note]) == "perplexity: not measured; not at 64: the encoding ends at 8 tokens"
    assert summary_line([text_row(96, None)]) == "perplexity: not finite at 96 (1.5x)"


def test_of_several_protocols_the_summary_is_about_the_first():
    rows = [text_row(64, 1.25), text_row(128, protocol="sliding")]
    assert summary_line(rows) == "perplexity (nonoverlapping): 12.50 at 64 (trained)"


def test_where_nothing_was_measured_the_note_says_it_all():
    notes = [text_row(length, note="too short") for length in (64, 128)]
    assert rows_as_text(notes).splitlines() == ["nonoverlapping", "alibi: not at 64, 128: too short"]
    # What failed was measured.
    assert "not finite" in rows_as_text([text_row(64, None)])


def test_a_large_ratio_is_written_out():
    told = {64: "(trained)", 96: "(1.5x)", 64 * 999: "(999x)", 64 * 1000: "(1,000x)", 400_000: "(6,250x)"}
    assert all(summary_line([text_row(length)]).endswith(ratio) for length, ratio in told.items())
