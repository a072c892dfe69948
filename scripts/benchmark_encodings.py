"""Measure the cost of each encoding: time and peak memory of a training step, relative to no encoding.

    python scripts/benchmark_encodings.py
    python scripts/benchmark_encodings.py --encodings rope,t5,fire --rounds 9
    python scripts/benchmark_encodings.py --device cuda --batch 16 --out scripts/results/costs_gpu

Time: in one process, a model with the encoding and one with `none` take turns, in rounds, on the same batch;
the ratio is taken round by round, so that a machine whose speed drifts slows both; its median is reported.
Memory: each model trains two steps in its own process; the number is the growth of that process at its
peak. Models are decoders, or encoders if the encoding has no decoder form. A wrapper is measured around
`alibi`, or around the first encoding that it accepts. An existing file of the same setting keeps the rows of
encodings that are not measured now.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from zoo import registry
from zoo.console import progress_bar
from zoo.encodings.base import Size
from zoo.encodings.parameters import HEADS, LAYERS, LENGTH, WIDTH, representative
from zoo.files import atomic_write
from zoo.memory import freed_memory_kept, peak_memory_mb, restart_peak_memory
from zoo.models.transformer import Decoder, Encoder
from zoo.recipe.encoding import encoding_label
from zoo.recipe.schema import ModelConfig

OUT = Path(__file__).parent / "results" / "costs"
WARM_UP = 2
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """Model, batch and device."""

    width: int
    layers: int
    heads: int
    length: int
    batch: int
    vocabulary: int
    precision: str
    device: str


class Training:
    """A model and its optimizer, which train on one batch of random tokens."""

    def __init__(self, name: str, kind: str, setting: Setting):
        self.device = torch.device(setting.device)
        size = Size(setting.width, setting.heads, setting.layers, setting.length, kind == "decoder")
        self.spec = representative(name, size)
        config = ModelConfig(
            kind=kind, encoding=self.spec, d_model=setting.width, num_layers=setting.layers,
            num_heads=setting.heads,
        )  # fmt: skip
        self.model = {"decoder": Decoder, "encoder": Encoder}[kind](
            config, setting.vocabulary, setting.length
        )
        self.model.to(self.device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        tokens = torch.randint(setting.vocabulary, (setting.batch, setting.length + 1))
        self.tokens = tokens.to(self.device)
        self.mixed = setting.precision == "bf16-mixed"

    def step(self) -> None:
        with torch.autocast(self.device.type, torch.bfloat16) if self.mixed else nullcontext():
            logits = self.model(self.tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), self.tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def time_ratios(name: str, kind: str, setting: Setting, rounds: int) -> Row:
    """Seconds of a step with the encoding and without, round by round."""
    pair = Training(name, kind, setting), Training("none", kind, setting)
    seconds: tuple[list[float], list[float]] = [], []
    with freed_memory_kept():
        for turn in range(-WARM_UP, rounds):
            # Who comes first changes, so that neither always finds the other's caches.
            for side in (0, 1) if turn % 2 else (1, 0):
                start = time.perf_counter()
                pair[side].step()
                if turn >= 0:
                    seconds[side].append(time.perf_counter() - start)
    ratios = [with_it / without for with_it, without in zip(*seconds, strict=True)]
    return {
        "label": encoding_label(_resolved(pair[0].spec)),
        "parameters": sum(p.numel() for p in pair[0].model.encoding.parameters()),
        "seconds": statistics.median(seconds[0]),
        "time": statistics.median(ratios),
        "time_from": min(ratios),
        "time_to": max(ratios),
    }


def peak_memory(name: str, kind: str, setting: Setting) -> Row:
    """MiB that a model, its gradients, its optimizer and two steps add to this process at their peak."""
    device = torch.device(setting.device)
    # What torch sets up once, at the first step of any model, is not the encoding's.
    tiny = {"width": setting.heads * 8, "layers": 1, "length": 16, "batch": 1, "vocabulary": 16}
    Training("none", kind, Setting(**{**vars(setting), **tiny})).step()
    restart_peak_memory(device)
    before = peak_memory_mb(device)
    training = Training(name, kind, setting)
    for _ in range(2):
        training.step()
    return {"memory_mb": peak_memory_mb(device) - before}


def _resolved(spec: Row) -> Row:
    """A specification with the encodings that its options hold by default."""
    options = registry.encodings.describe(spec["name"]).options
    defaults = {o.name: o.default for o in options if o.wraps}
    return {**{key: {"name": value} if isinstance(value, str) else value for key, value in defaults.items()
               if value is not registry.REQUIRED}, **spec}  # fmt: skip


def markdown(rows: list[Row], setting: Row) -> str:
    """The table, the most expensive encoding last, and its setting."""
    lines = ["| encoding | time of a step | from – to | peak memory | parameters |", "|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: (row.get("time") is None, row.get("time") or 0.0, row["name"])):
        about = (
            registry.encodings.describe(row["name"]) if row["name"] in registry.encodings.names() else None
        )
        marks = [row["kind"]] if row["kind"] != "decoder" else []
        marks += ["evaluation only"] if about is not None and about.replaces else []
        label = row.get("label", row["name"]) + (f" ({', '.join(marks)})" if marks else "")
        if "note" in row:
            lines.append(f"| {label} | – | {row['note']} | – | – |")
            continue
        memory = "–" if row["memory"] is None else f"{row['memory']:.2f}"
        lines.append(
            f"| {label} | {row['time']:.2f} | {row['time_from']:.2f} – {row['time_to']:.2f} | {memory} "
            f"| {row['parameters']:,} |"
        )
    lines += [
        "",
        f"Relative to `none`: width {setting['width']}, {setting['layers']} layers, {setting['heads']} "
        f"heads, length {setting['length']}, batch {setting['batch']}, vocabulary {setting['vocabulary']}, "
        f"{setting['precision']}; {setting['machine']}, torch {setting['torch']}; median of "
        f"{setting['rounds']} rounds.",
    ]
    return "\n".join(lines)


def measure(name: str, options: argparse.Namespace, without: dict[str, float]) -> Row:
    """The row of an encoding; `without` keeps the memory of `none` by kind of model."""
    kind = "decoder" if registry.encodings.describe(name).decoder else "encoder"
    row: Row = {"name": name, "kind": kind}
    try:
        if kind not in without:
            without[kind] = _apart("memory", "none", kind, options)["memory_mb"]
        row |= _apart("time", name, kind, options) | _apart("memory", name, kind, options)
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.strip().splitlines() if line.strip()]
        return row | {"note": lines[-1][:200] if lines else f"exit {error.returncode}"}
    row["memory"] = row["memory_mb"] / without[kind] if without[kind] > 0 else None
    return row


def _apart(what: str, name: str, kind: str, options: argparse.Namespace) -> Row:
    """A measurement in a fresh process."""
    command = [sys.executable, __file__, "--only", what, "--encodings", name, "--kind", kind]
    command += ["--rounds", str(options.rounds)]
    command += [part for key, value in vars(setting_of(options)).items() for part in (f"--{key}", str(value))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def setting_of(options: argparse.Namespace) -> Setting:
    return Setting(**{key: getattr(options, key) for key in Setting.__dataclass_fields__})


def full_setting(options: argparse.Namespace) -> Row:
    """The setting with the machine that it was measured on."""
    machine = f"{torch.get_num_threads()} threads of {platform.machine()}"
    if options.device == "cuda":
        machine = torch.cuda.get_device_name()
    return vars(setting_of(options)) | {
        "rounds": options.rounds,
        "machine": machine,
        "torch": torch.__version__,
    }


def kept_rows(file: Path, setting: Row, asked: list[str]) -> list[Row]:
    """The rows of an earlier run of the same setting, without the encodings that are measured now."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        rows = known["rows"] if known["setting"] == setting else []
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [row for row in rows if row["name"] not in asked]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--encodings", metavar="A,B", help="these alone (default: every registered one)")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--rounds", type=int, default=5, help="turns of each side (default: %(default)s)")
    add("--batch", type=int, default=2, help="sequences of a step (default: %(default)s, for a CPU)")
    add("--precision", choices=("32-true", "bf16-mixed"), default="32-true")
    for key, value in (("width", WIDTH), ("layers", LAYERS), ("heads", HEADS), ("length", LENGTH)):
        add(f"--{key}", type=int, default=value, metavar="N", help="default: %(default)s")
    add("--vocabulary", type=int, default=4096, metavar="N", help="default: %(default)s")
    add("--out", type=Path, default=OUT, metavar="STEM", help="path of the files, without an ending")
    add("--only", choices=("time", "memory"), help=argparse.SUPPRESS)
    add("--kind", choices=("decoder", "encoder"), help=argparse.SUPPRESS)
    return parser


def main(given: list[str] | None = None) -> None:
    parser = arguments()
    options = parser.parse_args(given)
    names = [name for name in (options.encodings or "").split(",") if name] or registry.encodings.names()
    for name in names:
        if name not in registry.encodings.names():
            parser.error(registry.encodings.unknown(name))
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: there is no GPU here")
    if options.only == "time":
        print(json.dumps(time_ratios(names[0], options.kind, setting_of(options), options.rounds)))
        return
    if options.only == "memory":
        print(json.dumps(peak_memory(names[0], options.kind, setting_of(options))))
        return
    setting, file = full_setting(options), options.out.with_suffix(".json")
    rows = kept_rows(file, setting, names)
    without: dict[str, float] = {}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with progress_bar(len(names), "measuring", "encoding") as bar:
        for name in names:
            bar.set_postfix_str(name)
            rows.append(measure(name, options, without))
            # Written after each row, so that an interruption loses one row.
            content = json.dumps({"setting": setting, "rows": rows}, indent=1)
            atomic_write(file, content + "\n")
            table = markdown(rows, setting)
            atomic_write(options.out.with_suffix(".md"), table + "\n")
            bar.update()
    print(f"{table}\n\nwritten: {options.out}.json, .md")


if __name__ == "__main__":
    main()
