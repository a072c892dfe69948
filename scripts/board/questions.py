"""The questions that papers answer differently: the figure and the table of each."""

from __future__ import annotations

from dataclasses import dataclass

from board.boards import Boards
from board.measured import Measured
from board.plots import change_plot, picture, task_plot
from board.values import means_table


@dataclass(frozen=True)
class Question:
    """What answers a question.

    Attributes:
        study: the title of a study or reading.
        rows, lengths: of the table.
        drawn: further encodings in the figure.
        subject: the encodings that the question asks about.
        reference: the encoding whose loss at the trained length is zero in the figure; none: each one's own.
    """

    study: str
    rows: tuple[str, ...]
    lengths: tuple[int, ...]
    drawn: tuple[str, ...] = ()
    subject: tuple[str, ...] = ()
    reference: str = ""


QUESTIONS = {
    "t5_and_fire": Question(
        "text", ("t5", "fire", "alibi", "kerple", "rope"), (256, 1024, 8192), subject=("t5", "fire")
    ),
    "no_encoding": Question(
        "text", ("none", "rope", "sinusoidal", "alibi", "fox"), (256, 1024, 8192), subject=("none",)
    ),
    "far_context": Question(
        "text_1024", ("alibi", "fox", "rope", "none"), (256, 512, 1024), subject=("alibi",)
    ),
    "rope": Question(
        "text_extended",
        ("rope", "rope, factor 8, scaling yarn", "self_extend", "rerope", "rope, window 256"),
        (256, 2048, 8192), ("dual_chunk",), ("rope",), "rope",
    ),
    "far_value": Question(
        "flip_flop_sparse", ("stick_breaking", "kerple", "path", "fox", "rope"), (24, 96, 192),
        ("cope",), ("stick_breaking",),
    ),
    "long_recall": Question(
        "associative_recall_long", ("asentmax", "nape+entmax", "nape", "alibi", "path"), (64, 1024, 16384),
        ("rope", "grape_a", "stick_breaking"), ("asentmax",),
    ),
}  # fmt: skip


def question_files(boards: Boards) -> tuple[dict[str, bytes], dict[str, str]]:
    """The figures by file name and the tables by name, of the questions whose study is stored."""
    asked = {name: one for name, one in QUESTIONS.items() if one.study in boards.every}
    figures, tables = {}, {}
    for name, question in asked.items():
        one = boards.every[question.study]
        figures[f"question_{name}.png"] = _figure(question, one, boards)
        known = [row for row in question.rows if row in one.encodings]
        tables[f"question-{name}"] = means_table(boards, one, known, question.lengths)
    return figures, tables


def _figure(question: Question, one: Measured, boards: Boards) -> bytes:
    names = [name for name in (*question.rows, *question.drawn) if name in one.encodings]
    if one.is_task:
        rows = one.rows[(one.rows["measure"] == "accuracy") & one.rows["encoding"].isin(names)]
        return picture(one.title, task_plot(rows, boards.floors_of(one)["accuracy"], question.subject))
    reference = question.reference if question.reference in names else ""
    title = f"text, {one.protocol}, trained at {one.trained} tokens"
    return picture(title, change_plot(one, names, one.protocol, question.subject, reference))
