"""The verb `report`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import whole_number
from zoo.console import waiting

SUMMARY = "Put all that is known of runs on one page: results, training, encodings, samples, recipes."
EXAMPLES = """
zoo report runs/alibi_wikitext2
zoo report runs/alibi_wikitext2 runs/rope_wikitext2 --out report.html
zoo report runs/*_wikitext2 --prompt "The river" --sample-tokens 400
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", type=Path, nargs="+", metavar="RUN", help="run folders")
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="(default: report.html)"
    )
    parser.add_argument(
        "--prompt", default="The", metavar="TEXT", help="prompt of language models (default: The)"
    )
    parser.add_argument(
        "--sample-tokens", type=whole_number, default=200, metavar="N",
        help="tokens that each of them writes, 0 for none (default: 200)",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_true", help="report runs that are not comparable, and mark it"
    )


def run(options: argparse.Namespace) -> None:
    with waiting("loading matplotlib"):
        from zoo.reports.full_report import report
        from zoo.runs.folder import runs_among
    report(runs_among(options.paths), options.out, options.force, options.prompt, options.sample_tokens)
