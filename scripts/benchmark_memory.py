"""Measure long sequences: peak memory and tokens per second of a forward pass, or of training, by length.

    python scripts/benchmark_memory.py
    python scripts/benchmark_memory.py --train --encodings cope,fire --lengths 4096,16384
    python scripts/benchmark_memory.py --encodings alibi,fire --lengths 1024,2048,4096
    python scripts/benchmark_memory.py --precision bf16-mixed --lengths 32768,131072
    python scripts/benchmark_memory.py --block-elements 67108864 --out /tmp/larger_blocks

Each pair of an encoding and a length is measured in its own process, at batch 1. Memory is the growth of that
process at its peak: the model and one forward pass up to its last layer, with `--train` also its gradients.
Models are decoders, or encoders if the encoding has no decoder form, of the size of
`recipes/base/wikitext2.yaml`. A wrapper is measured around the first plain encoding that it accepts. A length
that does not fit, or takes longer than `--limit`, is reported in its place. An existing file of the same
setting keeps the pairs that are not measured now.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmark_encodings import kept_rows
from zoo import registry
from zoo.console import progress_bar
from zoo.encodings.base import Size
from zoo.encodings.parameters import representative
from zoo.files import atomic_write
from zoo.memory import (
    freed_memory_kept,
    is_out_of_memory,
    peak_memory_mb,
    restart_peak_memory,
)
from zoo.models.plans import choose
from zoo.models.transformer import Decoder, Encoder
from zoo.recipe.encoding import encoding_label
from zoo.recipe.schema import ModelConfig

OUT = Path(__file__).parent / "results" / "memory"
LENGTHS = (1024, 4096, 16384, 32768)
SIZE = {"width": 128, "layers": 4, "heads": 4, "trained": 256, "vocabulary": 4096}
Row = dict[str, Any]


def forward(name: str, length: int, options: argparse.Namespace) -> Row:
    """Measures one pair, in this process."""
    kind = "decoder" if registry.encodings.describe(name).decoder else "encoder"
    spec = representative(
        name, Size(options.width, options.heads, options.layers, options.trained, kind == "decoder")
    )
    row: Row = {"name": name, "label": encoding_label(spec), "kind": kind, "length": length}
    device = torch.device("cpu")
    # What torch sets up once, at the first forward of any model, is not the encoding's.
    _run("none", kind, 16, options)
    restart_peak_memory(device)
    before = peak_memory_mb(device)
    try:
        seconds = _run(spec, kind, length, options)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            return row | {"note": "out of memory"}
        raise
    except ValueError as error:  # longer than the encoding can take
        return row | {"note": str(error)}
    return row | {"memory_mb": peak_memory_mb(device) - before, "seconds": seconds}


def _run(spec: Row | str, kind: str, length: int, options: argparse.Namespace) -> float:
    """Seconds of a forward, in training of the way back too, without building the model."""
    config = ModelConfig(
        kind=kind, encoding=spec, d_model=options.width, num_layers=options.layers, num_heads=options.heads
    )
    model = {"decoder": Decoder, "encoder": Encoder}[kind](config, options.vocabulary, options.trained)
    tokens = torch.randint(options.vocabulary, (1, length))
    mixed = torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16-mixed")
    with torch.inference_mode(not options.train), freed_memory_kept():
        start = time.perf_counter()
        with mixed:
            hidden = model.train(options.train).hidden(tokens)
        if options.train:
            hidden.float().square().mean().backward()
        return time.perf_counter() - start


def apart(name: str, length: int, options: argparse.Namespace) -> Row:
    """The same in a fresh process; its row has a note where nothing came back."""
    command = [sys.executable, __file__, "--only", "--encodings", name, "--lengths", str(length)]
    command += [part for key in SIZE for part in (f"--{key}", str(getattr(options, key)))]
    command += ["--block-elements", str(options.block_elements), "--precision", options.precision]
    command += ["--train"] if options.train else []
    row: Row = {"name": name, "label": name, "length": length}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return row | {"note": f"more than {options.limit:g} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    errors = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
    return row | {"note": errors[-1][:200]}


def markdown(rows: list[Row], setting: Row) -> str:
    """The table, a row for each encoding, and its setting."""
    lengths = sorted({row["length"] for row in rows})
    lines = ["| encoding | " + " | ".join(f"{length:,}" for length in lengths) + " |"]
    lines.append("|---" * (1 + len(lengths)) + "|")
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        found.setdefault(row["name"], {})[row["length"]] = row
    for name in sorted(found):
        its = found[name]
        label = max((row["label"] for row in its.values()), key=len)
        lines.append(f"| {label} | " + " | ".join(_cell(its.get(length)) for length in lengths) + " |")
    model = "{layers} layers of width {width}, {heads} heads, trained length {trained}, batch 1, {precision}"
    machine = "{machine}, torch {torch}, tables in blocks of {block_elements:,} numbers"
    what = "Training" if setting.get("train") else "A forward pass"
    about = f"{what}: MiB (tokens per second). {model.format(**setting)}; {machine.format(**setting)}."
    return "\n".join([*lines, "", about])


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if "note" in row:
        return row["note"]
    return f"{row['memory_mb']:,.0f} ({row['length'] / row['seconds']:,.0f})"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--encodings", metavar="A,B", help="these alone (default: every registered one)")
    add("--lengths", metavar="N,M", default=",".join(map(str, LENGTHS)), help="default: %(default)s")
    add("--limit", type=float, default=600, metavar="S", help="seconds for a length (default: %(default)g)")
    add("--precision", choices=("32-true", "bf16-mixed"), default="32-true")
    add("--train", action="store_true", help="measure a forward pass with its gradients")
    add("--out", type=Path, default=OUT, metavar="STEM", help="path of the files, without an ending")
    add("--block-elements", type=int, default=choose.BLOCK_ELEMENTS, metavar="N", help="default: %(default)s")
    for key, value in SIZE.items():
        add(f"--{key}", type=int, default=value, metavar="N", help="default: %(default)s")
    add("--only", action="store_true", help=argparse.SUPPRESS)
    return parser


def main(given: list[str] | None = None) -> None:
    parser = arguments()
    options = parser.parse_args(given)
    names = [name for name in (options.encodings or "").split(",") if name] or registry.encodings.names()
    for name in names:
        if name not in registry.encodings.names():
            parser.error(registry.encodings.unknown(name))
    lengths = [int(length) for length in options.lengths.split(",") if length.isdecimal()]
    if not lengths or ",".join(map(str, lengths)) != options.lengths or min(lengths) < 1:
        parser.error(f"--lengths are numbers of tokens, 1024,4096, not {options.lengths!r}")
    choose.BLOCK_ELEMENTS = options.block_elements
    if options.only:
        print(json.dumps(forward(names[0], lengths[0], options)))
        return
    setting = {key: getattr(options, key) for key in (*SIZE, "block_elements", "precision")}
    setting |= {
        "machine": f"{torch.get_num_threads()} threads of {platform.machine()}",
        "torch": torch.__version__,
    }
    setting |= {"train": True} if options.train else {}
    file = options.out.with_suffix(".json")
    rows = {(row["name"], row["length"]): row for row in kept_rows(file, setting, [])}
    file.parent.mkdir(parents=True, exist_ok=True)
    with progress_bar(len(names) * len(lengths), "measuring", "forward") as bar:
        for name in names:
            for length in lengths:
                bar.set_postfix_str(f"{name} {length}")
                rows[name, length] = apart(name, length, options)
                # Written after each pair, so that an interruption loses one pair.
                content = {"setting": setting, "rows": list(rows.values())}
                atomic_write(file, json.dumps(content, indent=1) + "\n")
                table = markdown(list(rows.values()), setting)
                atomic_write(options.out.with_suffix(".md"), table + "\n")
                bar.update()
    print(f"{table}\n\nwritten: {options.out}.json, .md")


if __name__ == "__main__":
    main()
