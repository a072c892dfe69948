"""The questions that papers answer differently, each with the stored entries that answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from board.measured import compared, curves, run_folders
from board.pairs import differences_table
from results import Study
from zoo.reports.report import build
from zoo.reports.text import markdown


@dataclass(frozen=True)
class Question:
    """A question, and the entries that answer it.

    Attributes:
        studies: their names.
        protocols: of those of the studies; none: all.
        changed: whether the evaluations of a checkpoint with a changed encoding are shown too.
        against: studies with the same encodings and another setting; the page has the differences to them.
    """

    text: str
    studies: Sequence[str]
    encodings: Sequence[str]
    protocols: Sequence[str] = ()
    changed: bool = False
    against: Sequence[str] = ()


AGAINST = """\
Paired over seeds and documents or examples, with the 95 % interval over both. Each model was trained with its
setting, so that a difference at the trained length is an effect on training."""
ROPES = ("rope", "rope_clipped", "p_rope", "none")
QUESTIONS = {
    "t5_and_fire": Question(
        "Do T5 and FIRE extrapolate beyond twice the trained length?",
        ["text"], ("rope", "t5", "fire", "alibi", "kerple"), ["nonoverlapping"],
    ),
    "no_encoding": Question(
        "Is no encoding the best or the worst?",
        ["text"], ("rope", "none", "sinusoidal", "alibi", "fox"), ["nonoverlapping"],
    ),
    "far_context": Question(
        "Does ALiBi use far context?",
        ["text"], ("rope", "none", "alibi", "t5", "fox"), ["sliding", "repeats"],
    ),
    "far_recall": Question(
        "Does ALiBi use far context? Associative recall",
        ["associative_recall"], ("rope", "none", "alibi", "t5", "fox"),
    ),
    "rope": Question("Why does RoPE fail?", ["text", "text_rope"], ROPES, ["nonoverlapping"], changed=True),
    "rope_log_n": Question(
        "Why does RoPE fail? Logits times log n", ["text_log_n"], ROPES, ["nonoverlapping"], changed=True,
        against=["text", "text_rope"],
    ),
    "rope_flip_flop": Question("Why does RoPE fail? Flip-flop", ["flip_flop", "flip_flop_rope"], ROPES),
    "rope_flip_flop_log_n": Question(
        "Why does RoPE fail? Flip-flop, logits times log n", ["flip_flop_log_n"], ROPES,
        against=["flip_flop", "flip_flop_rope"],
    ),
}  # fmt: skip


def question_files(name: str, studies: Sequence[Study], stored: Path) -> dict[str, bytes]:
    """The page of a question and its figure, by file name; none while fewer than two encodings are stored."""
    question = QUESTIONS[name]
    entries = [
        entry
        for study in studies
        if study.name in question.studies
        for entry in compared(
            [entry for entry in study.entries(stored) if entry.encoding in question.encodings]
        )
    ]
    if len({entry.encoding for entry in entries}) < 2:
        return {}
    with run_folders(entries, question.changed) as runs:
        report = build([*runs], protocols=question.protocols or None)
        tables = markdown(report).partition("\n")[2].strip()
    if question.against:
        named = {study.name: study for study in studies}
        (own,), others = ([named[one] for one in names] for names in (question.studies, question.against))
        made = differences_table(own, others, own.protocols[0], stored)
        tables += f"\n\n## Difference to the same encodings without the change\n\n{AGAINST}\n\n{made}" * bool(
            made
        )
    page = f"# {question.text}\n\n![Values by length in tokens](question_{name}.png)\n\n{tables}\n"
    return curves(f"question_{name}", report.summary) | {f"question_{name}.md": page.encode()}
