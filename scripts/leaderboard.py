"""Write docs/results from the tables of scripts/results: figures, tables, values.csv.

    python scripts/leaderboard.py                  # all pages, and the table in the README
    python scripts/leaderboard.py --out DIR        # write the pages to another folder
    python scripts/leaderboard.py --floors         # simulate the strategies that do not do a task

A page holds its text, and between `<!-- results: NAME -->` and `<!-- end -->` a table that is written here.
Nothing is computed again: `zoo sweep scripts/studies/NN_NAME.yaml --store scripts/results` measures more.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import results
from board.boards import Boards, read_boards
from board.correlation import correlation_figure, correlations
from board.floors import floors_file
from board.growth import growth, growth_figure, growth_table
from board.measured import Measured
from board.plots import change_plot, picture, task_plot
from board.questions import question_files
from board.settings import settings_tables
from board.values import csv, means_table, values, wide_table
from board.variants import (
    GATE,
    gate_figure,
    gate_table,
    gate_text,
    own_boards,
    own_figure,
    own_table,
    variants,
)
from zoo.comparison.formatting import display_name
from zoo.figures.ranking import board, dots
from zoo.files import atomic_write

OUT = results.ROOT / "docs" / "results"
CORRELATED = ("flip_flop", "copy", "selective_copy", "associative_recall")
"""The tasks in which most encodings have a score beyond the trained length."""
README = results.ROOT / "README.md"
BLOCK = re.compile(r"<!-- results: (.+?) -->.*?<!-- end -->", re.DOTALL)


def filled(text: str, tables: Mapping[str, str]) -> str:
    """A page with its tables as they are now; one whose study is not stored stays."""

    def block(found: re.Match[str]) -> str:
        made = tables.get(found[1])
        return found[0] if made is None else f"<!-- results: {found[1]} -->\n\n{made}\n\n<!-- end -->"

    return BLOCK.sub(block, text)


def study_table(one: Measured, boards: Boards) -> str:
    """The setting of a study, its figure and the means."""
    last = {change.partition("=")[0]: change for change in one.study.set}  # a reading may repeat a key
    settings = ", ".join(f"`{change}`" for change in last.values())
    least, most = min(one.seeds.values()), max(one.seeds.values())
    seeds = f"{least} to " * (least < most) + f"{most} seed{'s' * (most > 1)}"
    measure = (
        "share of whole answers" if one.is_task else f"{display_name(one.measure)} under `{one.protocol}`"
    )
    parts = [
        f"`{one.study.base}` with {settings}, {seeds}, trained at {one.trained} tokens.",
        f"![The most used encodings and the best, by length in tokens]({one.title}.png)",
    ]
    if one.is_task:
        parts.append("Dots: seeds. Grey: below the floor.")
    parts += [f"Mean {measure} by length; [intervals and seeds](values.csv):", means_table(boards, one)]
    return "\n\n".join(parts)


def study_picture(one: Measured, boards: Boards) -> bytes:
    """The figure of a study for the most used encodings and the best ones."""
    shown = boards.shown(one)
    if one.is_task:
        rows = one.rows[(one.rows["measure"] == one.measure) & one.rows["encoding"].isin(shown)]
        return picture(one.title, task_plot(rows, boards.floors[one.title][one.measure]))
    title = (
        f"{one.title}, {one.protocol}: change of the loss from {one.trained} tokens (loss there in brackets)"
    )
    return picture(title, change_plot(one, shown, one.protocol))


def board_files(boards: Boards) -> tuple[dict[str, bytes], dict[str, str]]:
    """The figures of the boards by file name, and their tables by name."""
    tables = {"summary": boards.summary(), "values": wide_table(boards)}
    drawn = {"decoder": {}, "encoder": {}}
    for one in (one for one in boards.found if not one.is_task):
        unit = f"{'bits per byte' if one.kind == 'decoder' else 'nats'} above the first (less is better)"
        title = f"Decoders on {one.title}" if one.kind == "decoder" else one.title
        drawn[one.kind][title] = board(one.ranking, unit)
        tables[f"{one.title}-board"] = boards.text_table(one)
    for kind, tasks in (("decoder", boards.tasks), ("encoder", boards.encoder_tasks)):
        if tasks:
            unit, prefix = "score above the floor (more is better)", "" if kind == "decoder" else "encoder-"
            drawn[kind] = drawn[kind] | {f"{kind.title()}s on tasks": board(tasks.ranking, unit)}
            tables[f"{prefix or 'task-'}board"] = boards.task_table(kind)
            tables[f"{prefix}floors"] = boards.floor_table(kind)
    files = {
        "leaderboard.png": dots(drawn["decoder"], boards.families, boards.matter()),
        "leaderboard_all.png": dots(drawn["decoder"], boards.families),
    }
    if encoders := dict(sorted(drawn["encoder"].items())):
        files["leaderboard_encoders.png"] = dots(encoders, boards.families)
    if boards.text and boards.tasks:
        tasks = dict(iter(boards.tasks.scores.groupby("task", sort=False)))
        tables["readme"] = boards.readme()
        tables["correlations"] = correlations(boards.text, tasks, ["nonoverlapping", "sliding"])
        few = {task: scores for task, scores in tasks.items() if task in CORRELATED}
        tables["question-perplexity"] = correlations(boards.text, few, ["sliding"])
        files["text_and_tasks.png"] = correlation_figure(boards.text, few)
    return files, tables


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="DIR", default=OUT, help="the folder of the pages")
    parser.add_argument(
        "--stored", type=Path, metavar="DIR", default=results.OUT, help="the stored measurements"
    )
    parser.add_argument("--floors", action="store_true", help="write STORED/floors.json alone (minutes)")
    options = parser.parse_args(argv)
    out, stored = options.out.resolve(), options.stored.resolve()
    studies = results.read_studies(results.STUDIES)
    if options.floors:
        atomic_write(stored / "floors.json", floors_file(studies))
        return
    boards = read_boards(studies, stored)
    files, tables = board_files(boards)
    for one in [*boards.found, *boards.readings.values()]:
        files[f"{one.title}.png"] = study_picture(one, boards)
        tables[one.title] = study_table(one, boards)
    figures, answers = question_files(boards)
    files |= figures
    if found := own_boards(boards):
        files["question_own_setting.png"] = own_figure(found, boards.families)
        answers["question-own_setting"] = own_table(found)
    if found := variants(boards, GATE):
        files["question_gate.png"] = gate_figure(found)
        answers["question-gate"] = gate_table(found)
    if boards.text and (gated := boards.others.get(f"{GATE}text")):
        answers["gate_text"] = gate_text(boards.text, gated)
    for study in studies:
        if len(grown := growth(study, stored)):
            files[f"{study.name}_growth.png"] = growth_figure(grown, min(study.lengths))
            answers[f"{study.name}-growth"] = growth_table(grown)
    files["values.csv"] = csv([values(one, boards.floors) for one in boards.every.values()])
    pages = {page.name: page.read_text() for page in OUT.glob("*.md") if page.name not in files}
    pages = {f"{title}.md": f"# {title}\n\n<!-- results: {title} --><!-- end -->\n" for title in tables
             if title in boards.every} | pages  # fmt: skip
    tables |= answers | settings_tables(studies, stored)
    files |= {name: filled(text, tables).encode() for name, text in pages.items()}
    for name, content in files.items():
        atomic_write(out / name, content)
    if out == OUT:
        atomic_write(README, filled(README.read_text(), tables).encode())
    print(f"{len(boards.found)} studies: {out / 'leaderboard.md'}")


if __name__ == "__main__":
    main()
