"""Rows as CSV and as Markdown."""

import csv
import io
import json

from rows import task_row, text_row

from zoo.evaluation.exports import as_csv, as_markdown, columns_of, number, seen_in_training, what_is_scored
from zoo.evaluation.tables import rows_as_text


def test_a_csv_gives_back_every_number():
    rows = [
        text_row(64, 1 / 3, changed={"model.encoding.factor": 4.0}, parameters={"stride": 0.5}),
        text_row(128, note='too long, "far" too long'),
        task_row(64, value=0.25),
    ]
    back = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert float(back[0]["bits_per_byte"]) == 1 / 3
    assert json.loads(back[0]["changed"]) == {"model.encoding.factor": 4.0}
    assert json.loads(back[0]["parameters"]) == {"stride": 0.5}
    assert back[1]["note"] == rows[1]["note"] and back[1]["bits_per_byte"] == ""
    assert {key for row in rows for key in row} == set(back[0])


def test_columns_keep_their_order_whichever_there_are():
    every = columns_of([text_row(), task_row(), text_row(note="n", changed={}), {"new_low": 1, "new": 0}])
    assert every[:4] == ["run", "encoding", "changed", "checkpoint"] and every[-1] == "note"
    assert every.index("new") + 1 == every.index("new_low")
    for rows in ([text_row()], [task_row(note="n")], [task_row(), text_row()], [text_row(), task_row()]):
        some = columns_of(rows)
        assert some == [column for column in every if column in some]


def test_a_table_of_encodings_by_lengths():
    rows = [
        text_row(64, 1.25), text_row(128, None), text_row(64, 2.0, encoding="learned"),
        text_row(128, encoding="learned", note="it ends at 64"),
        text_row(256, encoding="learned", note="it ends at 64"),
    ]  # fmt: skip
    assert as_markdown(rows).split("\n\n") == [
        "# tiny by length",
        "## nonoverlapping",
        "4,096 tokens of 8 documents. In brackets the 95 % interval.",
        "| bits per byte | 64 (trained) | 128 | 256 |\n|---|---|---|---|\n"
        "| alibi | 1.250 [1.150, 1.350] | not finite |  |\n"
        "| learned | 2.000 [1.900, 2.100] | –¹ | –¹ |",
        "¹ learned at 128, 256: it ends at 64",
        "| perplexity | 64 (trained) | 128 | 256 |\n|---|---|---|---|\n"
        "| alibi | 12.50 | not finite |  |\n| learned | 20.00 | –¹ | –¹ |",
        "¹ learned at 128, 256: it ends at 64\n",
    ]


def test_seeds_are_a_mean_and_its_spread():
    rows = [task_row(64, value, seed=seed) for seed, value in enumerate((0.25, 0.5, 0.75))]
    text = as_markdown(rows)
    assert "| alibi | 0.500 ± 0.250 |" in text and "100 examples at each length. After ± the standard" in text


def test_a_rate_over_no_answers_is_a_dash():
    rows = [task_row(64, accuracy_beyond=None), task_row(128, accuracy_beyond=0.5)]
    assert "| accuracy beyond | 64 (trained) | 128 |\n|---|---|---|\n| alibi | – | 0.500 |" in as_markdown(
        rows
    )


def test_many_lengths_are_lines():
    lengths = [2**n for n in range(2, 15)]
    rows = [text_row(n, encoding=e, protocol="per_position") for e in ("alibi", "rope") for n in lengths]
    text = as_markdown(rows)
    assert "| bits per byte | alibi | rope |\n|---|---|---|\n| 4 | 1.500 [1.400, 1.600] | 1.500 [1.4" in text
    assert "\n| 64 (trained) | 1.500" in text


def test_a_name_cannot_break_a_table():
    assert "| a\\|b |" in as_markdown([text_row(encoding="a|b")])


def test_nothing_but_notes_is_a_table_too():
    assert "| not measured | 64 (trained) |\n|---|---|\n| alibi | –¹ |\n\n¹ alibi at 64: no" in as_markdown(
        [text_row(note="no")]
    )


def test_numbers_are_short():
    assert [*map(number, (None, 0.5, 12.345, 123.45, 12345.6, 1.5e7))] == [
        "", "0.500", "12.35", "123.5", "12,346", "1.50e+07",
    ]  # fmt: skip


def test_what_is_scored_is_told_where_it_is_the_same():
    assert what_is_scored([text_row(documents=1), text_row(128, documents=1)]) == "4,096 tokens of 1 document"
    assert what_is_scored([text_row(), text_row(128, tokens=7), text_row(256, note="n")]) == "8 documents"
    assert what_is_scored([task_row(), task_row(128)]) == "100 examples at each length"
    assert what_is_scored([task_row(), task_row(128, examples=7)]) == ""


def test_what_training_may_have_seen_is_told_with_its_share_and_only_then():
    rows = [task_row(), task_row(128, seen_in_training=0.0), text_row(), task_row(64, note="n")]
    assert seen_in_training(rows) == "" and "seen" not in as_markdown(rows[:2])
    rows = [
        task_row(n, seen_in_training=share) for n, share in ((64, 1.0), (128, 0.25), (32, 1.0), (256, 0.0))
    ]
    said = (
        "raining may have seen 100% of what is scored at 32, 64 and 25% of what is scored at 128: "
        "too few different examples to hold any out"
    )
    assert seen_in_training(rows) == f"t{said}"
    assert f" T{said}.\n" in as_markdown(rows)


def test_a_mean_never_leaves_out_the_seed_that_failed():
    rows = [text_row(64, 1.0), text_row(64, None, seed=1), text_row(128, 1.0), text_row(128, 2.0, seed=1)]
    text = as_markdown(rows)
    assert "| alibi | –¹ | 1.500 ± 0.707 |" in text and "¹ alibi at 64: seed 1: not finite" in text


def test_a_name_that_is_more_than_a_name_is_shown_and_does_nothing():
    """A formula, the end of a cell, of a line and of a table, and red."""
    name = "=1+1|a\n# b\x1b[31m"
    rows = [text_row(64, encoding=name, run=f"@{name}"), text_row(128, -2.0, encoding=name, run=f"@{name}")]
    rows.append(text_row(256, note=f"ends\n\x1b{name}", encoding=name, run=f"@{name}"))
    (first, second, last) = csv.DictReader(io.StringIO(as_csv(rows)))
    assert first["encoding"] == "'=1+1|a\\n# b\\x1b[31m" and first["run"].startswith("'@=1+1")
    assert second["bits_per_byte"] == "-2.0" and "\x1b" not in last["note"]
    text, shown = as_markdown(rows), rows_as_text(rows)
    assert "\x1b" not in text + shown and "\n# b" not in text + shown
    lines = [line for line in text.splitlines() if line.startswith("| =")]
    assert lines and all(line.count("|") - line.count("\\|") == 5 for line in lines)
    many = [text_row(2**n, encoding=name, run=name) for n in range(14)]
    assert "\x1b" not in rows_as_text(many) + as_markdown(many) and "\n# b" not in as_markdown(many)
