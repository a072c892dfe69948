"""Compare training steps of the zoo with those of other libraries, measured in turn on one machine.

    python scripts/benchmark_peers.py --quick                     less than three minutes
    python scripts/benchmark_peers.py                             all sides in all modes: an hour or two
    python scripts/benchmark_peers.py --size medium --only rope,alibi --modes default,bf16
    python scripts/benchmark_peers.py --only 'HF*,zoo' --rounds 15 --out /tmp/peers
    python scripts/benchmark_peers.py --device cuda               a decoder of 124 M parameters, to 32k tokens

A side is a decoder of the same width, depth, heads, vocabulary and tied head, trained with AdamW and
clipping at 1.0 on random tokens: the zoo by `zoo fit` as it is, with Lightning and its callbacks; Hugging
Face and x-transformers by a plain loop, each with its own loss. `default` is what a user gets who sets
nothing; the other modes also keep freed memory (as `zoo fit` does), fuse attention where the library has an
option for it, and are timed in fp32 and bf16 (autocast), eager and compiled. Sides of one encoding take
turns, each in a process of its own, together with the bare loop (plain PyTorch by hand, fp32, no position).
A side's speed is relative to that of the bare loop in the same round: median, and quartiles over rounds.

Matrix rate: the matrix products of a step (6 operations per weight and token, and the causal half of
attention) per second, as a share of the fastest large product in that precision here. Peak memory: what
training adds to its process, after a tiny training of the same kind. Parameters agree to 3 %, a learned
table of positions included; T5's stack has no bias and one gain less, GPT-2 and BLOOM have biases.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import torch

from peers.bare import SIZES, matrix_rate, products
from peers.libraries import BUILDERS
from peers.sides import MODES, Running, Side
from peers.tables import MARKER, Row, all_rows, machine, summary, verdicts
from zoo.console import progress_bar
from zoo.files import atomic_write

OUT = Path(__file__).parent / "results" / "peers"
ENCODINGS = (
    "none", "sinusoidal", "learned", "rope", "alibi", "sandwich", "t5", "kerple", "dpb", "fire", "fox",
)  # fmt: skip
QUICK = ("none", "rope", "t5")
ANCHOR = Side("bare loop", "none", "fp32")
AT_ONCE = 5
"""Sides in memory at once, in addition to the bare loop."""


def sides_of(options: argparse.Namespace) -> list[Side]:
    """The sides asked for, by encoding; without the bare loop in fp32, which is always there."""
    encodings = QUICK if options.quick and not options.only else ENCODINGS
    named = [("bare loop", "none"), *(("zoo", name) for name in encodings)]
    named += [name for name in BUILDERS if name[1] in encodings and name not in named]
    sides = []
    for library, encoding in sorted(named, key=lambda name: encodings.index(name[1])):
        wanted = any(
            fnmatch.fnmatchcase(name, pattern)
            for pattern in options.only or ("*",)
            for name in (encoding, library, f"{library} {encoding}")
        )
        modes = options.modes or (("default", "bf16") if options.quick else MODES)
        if options.modes is None and library == "zoo":
            modes = ("default",) if options.quick else ("default", "fp32")
        sides += [Side(library, encoding, mode) for mode in modes if wanted]
    return [
        side for side in sides if side != ANCHOR and (side.library, side.mode) != ("bare loop", "default")
    ]


def groups(sides: Sequence[Side]) -> Iterator[list[Side]]:
    """Sides of one encoding, as many as are held at once."""
    for encoding in dict.fromkeys(side.encoding for side in sides):
        own = [side for side in sides if side.encoding == encoding]
        for start in range(0, len(own), AT_ONCE):
            yield own[start : start + AT_ONCE]


def measure(sides: Sequence[Side], name: str, options: argparse.Namespace) -> Iterator[Row]:
    """A row for each side of a group: they and the bare loop take turns in rounds."""
    size, device = SIZES[name], torch.device(options.device)
    with ExitStack() as stack:
        running: dict[Side, tuple[Running, int]] = {}
        seconds: dict[Side, list[float]] = {}
        about: dict[Side, Row] = {}
        for side in (ANCHOR, *sides):
            print(f"{name}: {side}", file=sys.stderr, flush=True)
            try:
                one = stack.enter_context(closing(Running(side, size, device, options.steps)))
                one.answer()
                steps = round(options.turn / one.turn(1)["seconds"])
                running[side], seconds[side] = (one, min(max(steps, 1), 100)), []
            except RuntimeError as error:
                about[side] = {"note": str(error)}
        if ANCHOR not in running:
            raise SystemExit(f"the bare loop failed: {about[ANCHOR]['note']}")
        for _ in range(options.rounds):
            for side, (one, steps) in running.items():
                about[side] = one.turn(steps)
                seconds[side].append(about[side]["seconds"])
    for side in (ANCHOR, *sides):
        row: Row = {"size": name, "library": side.library, "encoding": side.encoding, "mode": side.mode}
        if "note" in about[side]:
            yield row | about[side]
            continue
        ratios = [base / own for base, own in zip(seconds[ANCHOR], seconds[side], strict=True)]
        low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
        step, used = statistics.median(seconds[side]), about[side]["used"]
        yield row | {
            "used": used, "parameters": about[side]["parameters"], "loss": about[side]["loss"],
            "milliseconds": 1e3 * step, "tokens_per_second": size.batch * size.length / step,
            "share": median, "share_from": low, "share_to": high,
            "bare_milliseconds": 1e3 * min(seconds[ANCHOR]), "peak_memory_mb": about[side]["memory_mb"],
        }  # fmt: skip


def add_matrix_rates(rows: Sequence[Row], rates: dict[str, float]) -> None:
    """From a side's speed relative to the bare loop and the fastest turn of that, in any group: the products
    were timed at another moment, when the machine may have been slower or faster."""
    for row in rows:
        if "note" not in row:
            fastest = min(
                r["bare_milliseconds"] for r in rows if r["size"] == row["size"] and "note" not in r
            )
            per_second = products(SIZES[row["size"]]) / (1e-3 * fastest / row["share"])
            row["matrix_rate"] = per_second / rates["bf16" if "bf16" in row["used"] else "fp32"]


def training(options: argparse.Namespace) -> None:
    """Measure all groups, and write the results after each."""
    device = torch.device(options.device)
    rates = {"fp32": 0.0, "bf16": 0.0}
    load = os.getloadavg()[0]
    rows: dict[tuple[str, Side], Row] = {}
    work = [(name, group) for name in options.sizes for group in groups(sides_of(options))]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with progress_bar(len(work), "measuring", "group") as bar:
        for name, group in work:
            # Again and again: a machine that others use is slow at one moment and fast at another.
            for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
                rates[precision] = max(rates[precision], matrix_rate(dtype, device))
            for row in measure(group, name, options):
                side = Side(row["library"], row["encoding"], row["mode"])
                rows.setdefault((name, side), row)
            bar.update()
            about = (
                f"Training steps on {machine(options.device)}, load {load:.1f} at the start; torch "
                f"{torch.__version__}; {options.rounds} rounds; runs of {options.steps:,} steps. "
                "Fastest product: "
                f"{rates['fp32'] / 1e9:,.0f} G operations/s in fp32, "
                f"{rates['bf16'] / 1e9:,.0f} in bf16. "
                + "; ".join(f"{name}: {SIZES[name]}" for name in options.sizes)
            )
            found = list(rows.values())
            add_matrix_rates(found, rates)
            text = "\n\n".join([about + ".", summary(found), *verdicts(found), all_rows(found)])
            atomic_write(options.out.with_suffix(".json"), json.dumps(found, indent=1) + "\n")
            atomic_write(options.out.with_suffix(".md"), text)
    if options.readme:
        from leaderboard import filled

        short = "\n\n".join([about + ".", summary(found).rstrip(), *verdicts(found)])
        atomic_write(options.readme, filled(options.readme.read_text(encoding="utf-8"), {"peers": short}))
    print(f"{text}\nwritten: {options.out}.json, .md")


def arguments() -> argparse.ArgumentParser:
    def names(text: str) -> list[str]:
        return [name for name in text.split(",") if name]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--size", help=f"both (default on a CPU), or of {', '.join(SIZES)}, separated by commas")
    add("--only", type=names, metavar="A,B", help="encodings, libraries or sides; * for any letters")
    add("--modes", type=names, metavar="A,B", help=f"of {', '.join(MODES)} (default: all)")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add(
        "--quick", action="store_true", help=f"{', '.join(QUICK)} alone, nothing compiled by hand, few rounds"
    )
    add("--rounds", type=int, help="turns of each side (default: 9, or 3 with --quick)")
    add("--steps", type=int, metavar="N", help="of the zoo's run, by which it compiles or not "
        "(default: 100000, or 1000 with --quick)")  # fmt: skip
    add("--turn", type=float, default=0.4, metavar="S", help="about so long a turn (default: %(default)s s)")
    add("--out", type=Path, default=OUT, metavar="STEM", help="path of the files, without an ending")
    add("--readme", type=Path, metavar="FILE", help="write the short table between its markers too")
    return parser


def main(given: list[str] | None = None) -> None:
    parser = arguments()
    options = parser.parse_args(given)
    if options.size is None:
        options.size = "124M,124M-8k,124M-32k" if options.device == "cuda" else "both"
    options.sizes = options.size.replace("both", "small,medium").split(",")
    for given_names, known in ((options.sizes, SIZES), (options.modes or (), MODES)):
        if unknown := [name for name in given_names if name not in known]:
            parser.error(f"{', '.join(unknown)}: there are {', '.join(known)}")
    if options.rounds is None:
        options.rounds = 3 if options.quick else 9
    options.steps = options.steps or (1000 if options.quick else 100_000)
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    if not sides_of(options):
        parser.error(f"--only {','.join(options.only)}: no such side; there are the libraries zoo, "
                     f"{', '.join(dict.fromkeys(name for name, _ in BUILDERS))}")  # fmt: skip
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: there is no GPU here")
    if options.readme and MARKER not in options.readme.read_text(encoding="utf-8"):
        parser.error(f"{options.readme} has no line {MARKER}")
    training(options)


if __name__ == "__main__":
    main()
