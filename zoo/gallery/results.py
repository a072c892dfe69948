"""What the repository has measured, read from `scripts/results`: proofs, costs, curves over the length."""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.files import read_json, read_text
from zoo.gallery.markdown import in_cell, table

RESULTS = Path(__file__).resolve().parents[2] / "scripts" / "results"
"""Beside the package in a checkout; an installed package has none, and its pages no numbers."""
MAX_BYTES = 4 << 20


@dataclass(frozen=True)
class Study:
    """One comparison that is stored: its folder, what it is, and the recipe that makes its runs."""

    folder: str
    title: str
    setting: str
    recipe: str


STUDIES = (
    Study(
        "wikitext2",
        "WikiText-2",
        "4 layers of width 128, 1.3 M parameters, 700 steps of 8192 tokens, trained at 256 tokens, one seed; "
        "bits per byte (lower is better) in windows side by side over 17 documents",
        "recipes/base/wikitext2.yaml",
    ),
    Study(
        "rope_extension",
        "One RoPE checkpoint, read in other ways",
        "the RoPE model of WikiText-2, never trained again; bits per byte (lower is better) over the same 17 "
        "documents",
        "recipes/rope_wikitext2.yaml",
    ),
    Study(
        "flip_flop",
        "Flip-flop",
        "a decoder of 2 layers and width 64, trained at 24 tokens, three seeds; share of 1024 answers that "
        "are right (higher is better; a guess is 0.5)",
        "recipes/base/flip_flop.yaml",
    ),
    Study(
        "maxindex",
        "Max-index",
        "an encoder of 2 layers and width 64, trained at 64 tokens, one seed; share of 1024 indices that are "
        "right (higher is better)",
        "recipes/base/maxindex.yaml",
    ),
)


@functools.cache
def _rows(file: Path) -> tuple[dict[str, str], ...]:
    if not file.is_file():
        return ()
    return tuple(csv.DictReader(io.StringIO(read_text(file, MAX_BYTES))))


def rows_of(study: Study) -> tuple[dict[str, str], ...]:
    """The rows of a study's compare.csv; none outside a checkout."""
    return _rows(RESULTS / study.folder / "compare.csv")


def label_has(label: str, name: str) -> bool:
    """Whether an encoding stands in a label: `rope` in `rope yarn`, in `alibi+rope` and in `rope(x=1)`."""
    return any(part.split()[0].partition("(")[0] == name for part in label.split("+") if part.strip())


def curve_table(study: Study, shown: Callable[[str], bool] = lambda label: True) -> str:
    """A study's values by length, with 95 % intervals; of the encodings whose label is shown."""
    rows = [row for row in rows_of(study) if shown(row["encoding"])]
    lengths = sorted({int(row["length"]) for row in rows})
    labels = list(dict.fromkeys(row["encoding"] for row in rows))
    found = {(row["encoding"], int(row["length"])): row for row in rows}
    trained = {int(row["train_length"]) for row in rows}
    header = ["encoding", *(f"{length:,}{' (trained)' if length in trained else ''}" for length in lengths)]
    body = [(in_cell(label), *(_value(found.get((label, length))) for length in lengths)) for label in labels]
    return table(header, body, numbers=len(lengths)) if rows else ""


def _value(row: dict[str, str] | None) -> str:
    if row is None or not row["mean"]:
        return f'<span title="{in_cell(row["note"])}">–</span>' if row and row["note"] else "–"
    interval = f"<br><small>{float(row['low']):.3f}–{float(row['high']):.3f}</small>" if row["low"] else ""
    return f"{float(row['mean']):.3f}{interval}"


def studies_with(name: str) -> Iterator[Study]:
    """The studies in which an encoding was measured."""
    for study in STUDIES:
        if any(label_has(row["encoding"], name) for row in rows_of(study)):
            yield study


@functools.cache
def proofs() -> tuple[tuple[str, str, str], ...]:
    """Encoding, what it was checked against, and the largest difference, as `pytest --proofs` printed it."""
    file = RESULTS / "proofs.md"
    if not file.is_file():
        return ()
    lines = read_text(file, MAX_BYTES).splitlines()[2:]
    cells = (
        line.strip().strip("|").replace("\\|", "\0").split("|") for line in lines if line.startswith("|")
    )
    return tuple((a.strip(), b.strip().replace("\0", "|"), c.strip()) for a, b, c in cells)


@functools.cache
def costs() -> dict[str, dict]:
    """What a training step takes, relative to `none`, by the name of the encoding; and the setting."""
    file = RESULTS / "costs.json"
    if not file.is_file():
        return {}
    content = read_json(file)
    return {row["name"]: {**row, "setting": content["setting"]} for row in content["rows"]}


@functools.cache
def long_passes() -> dict[str, dict]:
    """What a forward pass over 32,768 tokens takes, by the name of the encoding."""
    file = RESULTS / "long_evaluation.json"
    return {row["name"]: row for row in read_json(file)["rows"]} if file.is_file() else {}


def costs_table() -> str:
    """Costs of all that were measured, the quickest first."""
    rows = sorted(costs().values(), key=lambda row: row["time"])
    return table(
        ("encoding", "time of a step", "from – to", "peak memory", "parameters"),
        [
            (in_cell(row["label"]), f"{row['time']:.2f}", f"{row['time_from']:.2f} – {row['time_to']:.2f}",
             f"{row['memory']:.2f}", f"{row['parameters']:,}")
            for row in rows
        ],
        numbers=4,
    )  # fmt: skip


def setting_text() -> str:
    """The setting of the costs in words."""
    if not costs():
        return ""
    s = next(iter(costs().values()))["setting"]
    return (
        f"width {s['width']}, {s['layers']} layers, {s['heads']} heads, length {s['length']}, batch "
        f"{s['batch']}, {s['precision']}, {s['machine']}, torch {s['torch']}, median of {s['rounds']} rounds"
    )
