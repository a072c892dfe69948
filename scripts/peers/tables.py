"""Tables of the results: a row for each side and mode, and a short table for the README."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]
"""size, library, encoding, mode; either `note`, why it was not measured, or used (the mode as it came out),
parameters, loss (of the first step), milliseconds, tokens_per_second, share, share_from, share_to (median and
quartiles of the speed, of that of the bare loop in fp32 in the same round), bare_milliseconds (its fastest
turn), matrix_rate, peak_memory_mb."""

MARKER = "<!-- results: peers -->"
INSTRUCTIONS = {
    "amx_bf16": "AMX with bf16", "avx512_bf16": "AVX-512 with bf16", "avx512f": "AVX-512", "avx2": "AVX2",
}  # fmt: skip


def machine(device: str) -> str:
    """Cores and instruction set, or the GPU."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        flags = []
    known = [name for flag, name in INSTRUCTIONS.items() if flag in flags]
    return f"{os.cpu_count()} cores, {known[0] if known else platform.machine()}"


def all_rows(rows: Sequence[Row]) -> str:
    """Every side and mode, by size and encoding, the fastest first."""
    lines = ["| size | encoding | side | mode | parameters | ms | tokens/s | of the bare loop | matrix rate "
             "| peak MiB |", "|---|---|---|---|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for row in sorted(rows, key=lambda row: (row["size"] != "small", row["encoding"], -row.get("share", 0))):
        mode = row["mode"]
        if "note" in row:
            cells = [mode, "–", "–", "–", row["note"].replace("|", "/").splitlines()[0], "–", "–"]
        else:
            cells = [
                f"{mode}: {row['used']}" if row["used"] != mode else mode, f"{row['parameters']:,}",
                f"{row['milliseconds']:,.1f}", f"{row['tokens_per_second']:,.0f}", share(row),
                f"{row['matrix_rate']:.0%}", f"{row['peak_memory_mb']:,.0f}",
            ]  # fmt: skip
        lines.append(f"| {' | '.join([row['size'], row['encoding'], row['library'], *cells])} |")
    return "\n".join(lines) + "\n"


def share(row: Row) -> str:
    return f"{row['share']:.2f} ({row['share_from']:.2f} – {row['share_to']:.2f})"


def summary(rows: Sequence[Row]) -> str:
    """A line for each side: as its user gets it, and in its fastest mode, at each size."""
    measured = [row for row in rows if "note" not in row]
    sizes = list(dict.fromkeys(row["size"] for row in measured))
    titles = ["encoding", "side", *(f"{size}, {what}" for size in sizes
              for what in ("default", "fastest", "matrix rate", "peak MiB"))]  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|---|---|" + "---|---|--:|--:|" * len(sizes)]
    for library, encoding in _sides(measured):
        cells = []
        for size in sizes:
            default, best = of_side(measured, size, library, encoding)
            if best is None:
                cells += ["–"] * 4
                continue
            cells.append(f"{share(default)} {default['used']}" if default else "–")
            cells += [f"{share(best)} {best['used']}", f"{best['matrix_rate']:.0%}"]
            cells.append(f"{(default or best)['peak_memory_mb']:,.0f}")
        lines.append(f"| {encoding} | {library} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _sides(measured: Sequence[Row]) -> list[tuple[str, str]]:
    """The bare loop, then by encoding: the zoo, and its peers."""
    sides = dict.fromkeys((row["library"], row["encoding"]) for row in measured)
    encodings = list(dict.fromkeys(encoding for _, encoding in sides))
    return sorted(sides, key=lambda s: (s[0] != "bare loop", encodings.index(s[1]), s[0] != "zoo", s[0]))


def of_side(rows: Sequence[Row], size: str, library: str, encoding: str) -> tuple[Row | None, Row | None]:
    """Its default and its fastest mode; None where not measured."""
    own = [r for r in rows if (r["size"], r["library"], r["encoding"]) == (size, library, encoding)]
    default = next((row for row in own if row["mode"] == "default"), None)
    return default, max(own, key=lambda row: row["share"], default=None)


def verdicts(rows: Sequence[Row]) -> list[str]:
    """For each size, the zoo's default compared with the fastest peer's default and its fastest mode, for the
    encodings that a peer has."""
    lines = []
    measured = [row for row in rows if "note" not in row and row["library"] != "bare loop"]
    for size in dict.fromkeys(row["size"] for row in measured):
        parts = []
        for row in measured:
            if (row["size"], row["library"], row["mode"]) != (size, "zoo", "default"):
                continue
            peers = [r for r in measured if r["size"] == size and r["encoding"] == row["encoding"]
                     and r["library"] != "zoo"]  # fmt: skip
            defaults = [peer["share"] for peer in peers if peer["mode"] == "default"]
            if defaults:
                to_all = row["share"] / max(peer["share"] for peer in peers)
                parts.append(f"{row['encoding']} {row['share'] / max(defaults):.2f} and {to_all:.2f}")
        if parts:
            lines.append(
                f"{size}: the zoo's default to the fastest peer's default, and to the fastest peer in "
                f"any mode measured: {', '.join(parts)}"
            )
    return lines
