"""The questions that papers answer differently, each with the stored entries that answer it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from board.boards import Boards
from board.figures import StudyPanel, lines
from board.measured import curve_name, encoding_of, left_out, of_common_seeds, reports, shown_runs
from board.pairs import differences_table, losses
from board.panels import UNITS, change_panel, task_panel
from board.values import means_table, values
from results import Study
from zoo.reports.report import Report
from zoo.reports.text import markdown


@dataclass(frozen=True)
class Question:
    """A question, and the entries that answer it.

    Attributes:
        studies: their names.
        protocols: of those of the studies; none: all.
        changed: whether the evaluations of a checkpoint with a changed encoding are shown too.
        against: studies with the same encodings and another setting; the page has the differences to them.
        subject: the encodings that the question asks about.
        reference: the encoding whose loss at the trained length is zero in the figure; none: each one's own.
    """

    text: str
    studies: Sequence[str]
    encodings: Sequence[str]
    protocols: Sequence[str] = ()
    changed: bool = False
    against: Sequence[str] = ()
    subject: Sequence[str] = ()
    reference: str = ""


AGAINST = """\
Paired over seeds and documents or examples, with the 95 % interval over both. Each model was trained with its
setting, so that a difference at the trained length is an effect on training."""
ROPES = ("rope", "rope_clipped", "p_rope", "none")
QUESTIONS = {
    "t5_and_fire": Question(
        "Do T5 and FIRE extrapolate beyond twice the trained length?",
        ["text"], ("rope", "t5", "fire", "alibi", "kerple"), ["nonoverlapping"], subject=("t5", "fire"),
    ),
    "no_encoding": Question(
        "Is no encoding the best or the worst?",
        ["text"], ("rope", "none", "sinusoidal", "alibi", "fox"), ["nonoverlapping"], subject=("none",),
    ),
    "far_context": Question(
        "Does ALiBi use far context?",
        ["text"], ("rope", "none", "alibi", "t5", "fox"), ["sliding", "repeats"], subject=("alibi",),
    ),
    "longer_training": Question(
        "Does ALiBi use far context? Models trained at 1,024 tokens", ["text_1024"],
        ("rope", "none", "alibi", "fox"), ["sliding", "nonoverlapping"], against=["text"], subject=("alibi",),
    ),
    "far_recall": Question(
        "Does ALiBi use far context? Associative recall",
        ["associative_recall"], ("rope", "none", "alibi", "t5", "fox"), subject=("alibi",),
    ),
    "long_recall": Question(
        "Which encodings recall at 1,024 times the trained length?", ["associative_recall_long"],
        ("rope", "alibi", "grape_a", "path", "heads", "stick_breaking", "nape_adaptive", "nape_entmax"),
        subject=("nape_adaptive",),
    ),
    "long_recall_8": Question(
        "Which encodings recall eight pairs at 1,024 times the trained length?",
        ["associative_recall_8_long"], ("path", "heads", "nape_adaptive"), subject=("heads",),
    ),
    "rope": Question(
        "Why does RoPE fail?", ["text", "text_rope"], ROPES, ["nonoverlapping"], changed=True,
        subject=("rope",), reference="rope",
    ),
    "rope_log_n": Question(
        "Why does RoPE fail? Logits times log n", ["text_log_n"], ROPES, ["nonoverlapping"], changed=True,
        against=["text", "text_rope"], subject=("rope",), reference="rope",
    ),
    "wider_rope": Question(
        "Is it the parameters? RoPE with as many as DeBERTa", ["text_wide"], ("rope",), ["nonoverlapping"],
        against=["text"], subject=("rope",),
    ),
    "rope_flip_flop": Question(
        "Why does RoPE fail? Flip-flop", ["flip_flop", "flip_flop_rope"], ROPES, subject=("rope",)
    ),
    "rope_flip_flop_log_n": Question(
        "Why does RoPE fail? Flip-flop, logits times log n", ["flip_flop_log_n"], ROPES,
        against=["flip_flop", "flip_flop_rope"], subject=("rope",),
    ),
}  # fmt: skip


def question_files(
    name: str, studies: Sequence[Study], stored: Path, boards: Boards
) -> tuple[dict[str, bytes], list[pd.DataFrame]]:
    """The page of a question and its figure, by file name, and its values; none while nothing is stored."""
    question = QUESTIONS[name]
    asked = [study for study in studies if study.name in question.studies]
    encodings = {*question.encodings, *boards.best(asked[0].name)[:1]}
    entries = [
        entry
        for study in asked
        for entry in study.entries(stored)
        if entry.encoding in encodings and entry.run
    ]
    if not entries:
        return {}, []
    entries = of_common_seeds(entries)
    own = {name for study in asked for name in study.own}
    report, compared = reports(
        shown_runs(entries, question.changed), own, protocols=question.protocols or None
    )
    tables = markdown(compared).partition("\n")[2].strip()
    if question.against:
        named = {study.name: study for study in studies}
        (own,), others = ([named[one] for one in names] for names in (question.studies, question.against))
        made = differences_table(own, others, own.protocols[0], stored)
        heading = f"\n\n## Difference to the same encodings without the change\n\n{AGAINST}\n\n{made}"
        tables += heading * bool(made)
    names = {
        label: curve_name(encoding_of(report.results.runs[own["run"]]), json.loads(own["changed"]))
        for label, own in report.results.rows.groupby("encoding", sort=False).first().iterrows()
    }
    rows = report.results.rows.assign(name=report.results.rows["encoding"].map(names))
    summary = report.summary.assign(name=report.summary["encoding"].map(names))
    if report is not compared:
        means = means_table(summary, "token_accuracy")
        head = "The share of an answer's tokens that are right."
        tables = f"{head} {left_out(own)}\n\n{means}\n\n{tables}"
    page = f"# {question.text}\n\n![{question.text}](question_{name}.png)\n\n{tables}\n"
    files = {
        f"question_{name}.md": page.encode(),
        f"question_{name}.png": lines([_panel(question, asked[0], rows, report, boards)]),
    }
    return files, [values(f"question_{name}", rows, summary, question.protocols or asked[0].protocols)]


def _panel(
    question: Question, asked: Study, rows: pd.DataFrame, report: Report, boards: Boards
) -> StudyPanel:
    protocol = rows["protocol"].iloc[0]
    if question.protocols:
        protocol = question.protocols[0]
    own = rows[rows["protocol"] == protocol]
    measure = next(one for one in (*UNITS, "token_accuracy", "accuracy") if (own["measure"] == one).any())
    own = own[own["measure"] == measure]
    trained = int(own["train_length"].min())
    if measure in UNITS:
        found = {name: losses(one, report.results.units) for name, one in own.groupby("name", sort=False)}
        return change_panel(
            f"{question.studies[0]}, {protocol}",
            UNITS[measure],
            trained,
            found,
            question.subject,
            question.reference,
        )
    data = asked.recipe("none", 0).data
    floors = next(
        boards.floors[one.study.title]
        for one in boards.found
        if one.study.title in boards.floors and one.study.recipe("none", 0).data == data
    )
    return task_panel(question.studies[0], own, trained, floors[measure], question.subject)
