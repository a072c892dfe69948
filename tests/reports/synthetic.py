"""Made-up comparisons, for tests of how one is shown."""

from __future__ import annotations

import math
import statistics
from itertools import combinations, pairwise

from zoo.reports.report import Caveat, Cost, Curve, Difference, Panel, Point, Report

LABELS = (
    "alibi", "rope scaling=yarn factor=4", "sinusoidal", "learned", "t5", "none",
    "interleave pattern=[rope, rope, rope, none]", "kerple", "fire", "sandwich", "cope", "dape of=alibi",
)  # fmt: skip
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
TRAINED = 256
REFUSED = "no row for positions beyond 256: past_table is refuse"
BINS = tuple(sorted({math.ceil(2 ** (n / 2)) for n in range(8, 27)}))
PROTOCOLS = (
    ("nonoverlapping", {}, LENGTHS),
    ("sliding", {"stride": 0.5}, LENGTHS),
    ("fixed_targets", {"targets": 200}, LENGTHS),
    ("per_position", {"window": 8192, "bins_per_octave": 2}, BINS),
)


def value(which: int, length: int, seed: int) -> float:
    """Bits per byte; the third curve fails past the trained length, the others by little."""
    doublings = math.log2(length / TRAINED)
    slope = 0.9 if which == 2 else 0.012 * (which - 3)
    bend = slope * max(doublings, 0) - 0.05 * min(doublings, 0)
    return 1.6 + 0.021 * which + bend + 0.004 * seed * (1 + which % 3) * (1 + 0.3 * abs(doublings))


def curve(which: int, lengths: tuple[int, ...], seeds: int, accuracy: bool = False) -> Curve:
    """One of the curves; the fourth cannot be read past the trained length."""
    points, mean, low, high, sd, notes = [], [], [], [], [], {}
    for length in lengths:
        if which == 3 and length > TRAINED:
            notes[length] = REFUSED
            for values in (mean, low, high, sd):
                values.append(None)
            continue
        values = [value(which, length, seed) for seed in range(seeds)]
        if accuracy:
            values = [1 / (1 + math.exp(5 * (v - 2))) for v in values]
        points += [Point(seed, length, v) for seed, v in enumerate(values)]
        mean.append(statistics.fmean(values))
        sd.append(statistics.stdev(values) if seeds > 1 else None)
        beside = sd[-1] if seeds > 1 else 0.02
        low.append(mean[-1] - beside)
        high.append(mean[-1] + beside)
    runs = tuple(f"runs/{LABELS[which].split()[0]}_{seed}" for seed in range(seeds))
    counts = tuple(None if m is None else 60 for m in mean)
    return Curve(
        LABELS[which], runs, lengths, tuple(mean), tuple(low), tuple(high), seeds, tuple(points), notes,
        tuple(sd), tuple(0 if m is None else seeds for m in mean), counts,
        tuple(None if m is None else 4000.0 for m in mean), tuple(None if m is None else 900.0 for m in mean),
        TRAINED,
    )  # fmt: skip


def pairs(curves: tuple[Curve, ...], lengths: tuple[int, ...]) -> dict[tuple[int, str, str], Difference]:
    """Differences that are nearly certain: intervals of 1e-6 to either side."""
    made = {}
    for place, length in enumerate(lengths):
        there = [one for one in curves if one.mean[place] is not None]
        for one, other in combinations(there, 2):
            apart = one.mean[place] - other.mean[place]
            made[length, one.label, other.label] = Difference(apart, apart - 1e-6, apart + 1e-6)
    return made


def comparison(
    curves: int = 3,
    panels: int = 2,
    seeds: int = 3,
    differences: tuple[str, ...] = (),
    accuracy: bool = False,
) -> Report:
    """So many curves of so many protocols."""
    made = []
    for protocol, parameters, lengths in (("accuracy", {}, LENGTHS),) if accuracy else PROTOCOLS[:panels]:
        shown = tuple(curve(which, lengths, seeds, accuracy) for which in range(curves))
        made.append(Panel(
            kind=(protocol, "{}", ""), protocol=protocol, parameters=parameters,
            axis="context" if "window" in parameters else "length", explanation=f"What {protocol} scores.",
            measure="accuracy" if accuracy else "bits_per_byte",
            lower_is_better=not accuracy, lengths=lengths,
            curves=shown, counted="examples" if accuracy else "documents",
            interval=f"95 % interval over {'seeds and ' if seeds > 1 else ''}documents",
            reference=LABELS[0], pairs=pairs(shown, lengths),
        ))  # fmt: skip
    costs = tuple(
        Cost(LABELS[which], 64 * which, 1_312_128 + 64 * which, 9876.5 - 321 * which, 4480.9 - 99 * which,
             8192, 905.9 + 77 * which if which != 2 else None)
        for which in range(curves)
    )  # fmt: skip
    about = (
        ("task", "language_modeling"), ("data", "wikitext-2"), ("model", "decoder, 4 layers of width 128"),
        ("parameters without the encoding's", "1,312,128"), ("trained length (tokens)", "256"),
        ("steps", "700"), ("tokens seen", "5,734,400"), ("seeds", ", ".join(map(str, range(seeds)))),
    )  # fmt: skip
    title = f"{curves} encodings on wikitext-2, trained at 256 tokens"
    caveats = (Caveat("torch differs: 2.12.0 in runs/alibi_0; 2.13.0 in the other 5"),)
    return Report(
        title, tuple(made), costs, differences, about, "python -m zoo compare a b", caveats,
        "Verdict: by bits per byte, all are tied.",
    )  # fmt: skip


NOT_COMPARABLE = (
    "recipe trainer.max_steps: 700 in runs/alibi_0; 1400 in the other 5",
    "card fingerprint.tokenizer: 93c0b6c91df1 in runs/alibi_0; 0aa1f3e2b7c4 in runs/learned_0, runs/t5_0",
)

assert all(shorter < longer for shorter, longer in pairwise(BINS))
