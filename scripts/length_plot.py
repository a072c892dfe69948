"""Lay the evaluations of several runs side by side: a table, a picture, and the numbers behind them.

    python scripts/length_plot.py runs/*_wikitext2 --out scripts/results/wikitext2

writes wikitext2.json, wikitext2.md and wikitext2.png. The runs must have been evaluated (`zoo fit` does it at
its end, `zoo evaluate` at other lengths).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from zoo.evaluation.plot import plot_lengths

LAST = "checkpoints/last.ckpt"


def read_rows(runs: list[Path], protocol: str) -> list[dict]:
    """The rows of the runs' last checkpoints."""
    rows = []
    for run in runs:
        file = run / "evaluation" / "lengths.json"
        if not file.is_file():
            sys.exit(f"{file} does not exist: evaluate the run first (python -m zoo evaluate {run})")
        for row in json.loads(file.read_text(encoding="utf-8")):
            if row["protocol"] == protocol and row["checkpoint"] == LAST:
                rows.append(row)
    return rows


def markdown(rows: list[dict], measures: list[str]) -> str:
    """Encodings by lengths; several seeds are averaged, and a length that cannot be taken is a dash."""
    lengths = sorted({row["length"] for row in rows})
    lines = []
    for measure in measures:
        head = [f"{n} (trained)" if n == rows[0]["train_length"] else str(n) for n in lengths]
        lines += [
            f"| {measure.replace('_', ' ')} | " + " | ".join(head) + " |",
            "|---" * (len(lengths) + 1) + "|",
        ]
        for encoding in sorted({row["encoding"] for row in rows}):
            cells = []
            for length in lengths:
                own = [
                    r for r in rows if r["encoding"] == encoding and r["length"] == length and measure in r
                ]
                mean = sum(r[measure] for r in own) / len(own) if own else None
                cells.append("–" if mean is None else f"{mean:.3f}" if mean < 10 else f"{mean:,.1f}")
            lines.append(f"| {encoding} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="STEM", help="path of the files, without an ending"
    )
    parser.add_argument("--protocol", default="nonoverlapping")
    parser.add_argument("--title")
    options = parser.parse_args()
    rows = read_rows(options.runs, options.protocol)
    if not rows:
        sys.exit(f"none of the runs was evaluated by the protocol {options.protocol!r}")
    known = ("accuracy", "value_accuracy", "bits_per_byte", "word_perplexity", "perplexity")
    measures = [m for m in known if any(m in row for row in rows)]
    if "bits_per_byte" not in measures and "accuracy" not in measures:
        measures = ["loss_nats"]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(markdown(rows, measures[:2]), encoding="utf-8")
    plot_lengths(rows, options.out.with_suffix(".png"), options.title)
    print(markdown(rows, measures[:2]))
    print(f"written: {options.out}.json, .md, .png")


if __name__ == "__main__":
    main()
