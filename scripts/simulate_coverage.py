"""The coverage of the 95 % intervals of `zoo.evaluation.interval` and of the leaderboard, by simulation.

    python scripts/simulate_coverage.py            the tables of docs/coverage.md, in a few minutes

Documents are like those of WikiText-2: sizes log-normal with a deviation of 0.8 of their logarithm (0.68 in
the validation text, 0.86 in the whole), losses per byte that differ by a tenth from document to document.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from scipy.signal import lfilter

import results
from board.boards import read_boards
from zoo.comparison.ranking import Ranking, better_than, bootstrap, interquartile_mean
from zoo.comparison.ranking import of_scores as ranking_of_scores
from zoo.evaluation.interval import (
    Interval,
    combined,
    interval_of_mean,
    interval_of_rate,
    interval_of_rate_difference,
    interval_of_ratio,
)

COUNTS = (5, 10, 17, 41, 60)
SEEDS = 3
"""Of each task on the leaderboard."""
BLOCK = 64


def held(make: Callable[[], Interval], truth: float, repetitions: int) -> float:
    """The share of intervals that hold the truth."""
    return float(np.mean([low <= truth <= high for low, high in (make() for _ in range(repetitions))]))


def documents(rng: np.random.Generator, count: int, slope: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Losses and sizes; `slope`: how much the loss per byte follows the size, in deviations."""
    size = rng.normal(0, 1, count)
    noise = 0.13 * rng.normal(size=count) + 0.05 * (rng.exponential(size=count) - 1)
    sizes = np.exp(9.5 + 0.8 * size)
    return (2.3 + slope * size + noise) * sizes, sizes


def of_documents(count: int, repetitions: int, slope: float = 0.0) -> float:
    rng = np.random.default_rng(count)
    amounts, sizes = documents(rng, 2_000_000, slope)
    truth = amounts.sum() / sizes.sum()
    return held(lambda: interval_of_ratio(*documents(rng, count, slope)), truth, repetitions)


def of_paired_documents(count: int, repetitions: int) -> float:
    """Two models on the same documents, whose difference is another one from document to document."""
    rng = np.random.default_rng(count)

    def once() -> Interval:
        sizes = documents(rng, count)[1]
        return interval_of_ratio((0.02 + 0.03 * rng.normal(size=count)) * sizes, sizes)

    return held(once, 0.02, repetitions)


def one_text(rng: np.random.Generator, tokens: int, correlation: float) -> np.ndarray:
    """Losses of the tokens of one text, of mean 3; the part that follows the text forgets itself over so many
    tokens (AR(1))."""
    memory = np.exp(-1 / correlation)
    drift = lfilter([np.sqrt(1 - memory**2)], [1, -memory], rng.normal(size=tokens + 10 * int(correlation)))
    return 3 + drift[-tokens:] + 2 * rng.normal(size=tokens)


def of_blocks(count: int, repetitions: int, correlation: float) -> float:
    """Blocks of one text; `correlation` in blocks."""
    rng = np.random.default_rng(count)

    def once() -> Interval:
        losses = one_text(rng, count * BLOCK, correlation * BLOCK)
        return interval_of_ratio(losses.reshape(count, BLOCK).sum(1), np.full(count, BLOCK))

    return held(once, 3.0, repetitions)


def of_rate(rate: float, repetitions: int) -> float:
    rng = np.random.default_rng(0)
    return held(lambda: interval_of_rate(rng.random(1024) < rate), rate, repetitions)


def of_paired_rates(one: float, other: float, alike: float, repetitions: int) -> float:
    """`alike`: the share of examples at which both models err by the same draw; -1: by the opposite one."""
    rng = np.random.default_rng(0)

    def once() -> Interval:
        draw = rng.random(1024)
        theirs = 1 - draw if alike < 0 else np.where(rng.random(1024) < alike, draw, rng.random(1024))
        return interval_of_rate_difference((draw < one) * 1.0 - (theirs < other))

    return held(once, one - other, repetitions)


def of_seeds_and_documents(seeds: int, count: int, deviations: Sequence[float], repetitions: int) -> float:
    """`deviations`: of the loss per byte from seed to seed, from document to document, and of both."""
    rng, (of_seed, of_document, of_both) = np.random.default_rng(seeds), deviations

    def once() -> Interval:
        sizes = documents(rng, count)[1]
        rates = 0.1 + of_document * rng.normal(size=count) + of_seed * rng.normal(size=(seeds, 1))
        amounts = (rates + of_both * rng.normal(size=(seeds, count))) * sizes
        values = amounts.sum(1) / sizes.sum()
        return combined(values.mean(), interval_of_ratio(amounts.mean(0), sizes), interval_of_mean(values))

    return held(once, 0.1, repetitions)


Profile = Sequence[tuple[float, float]]
"""Mean and variance of a seed's score in each task; the scores have the beta distribution with these."""


def drawn_scores(rng: np.random.Generator, mean: float, variance: float, count: int) -> np.ndarray:
    if variance < 1e-8:
        return np.full(count, mean)
    weight = mean * (1 - mean) / min(variance, 0.95 * mean * (1 - mean)) - 1
    return rng.beta(mean * weight, (1 - mean) * weight, count)


def true_score(rng: np.random.Generator, profile: Profile) -> float:
    every = np.concatenate([drawn_scores(rng, *task, 20_000) for task in profile])
    return float(interquartile_mean(every, np.ones(len(every))))


def of_places(profiles: Sequence[Profile], seeds: int, boards: int) -> tuple[float, float]:
    """The share of intervals of places that hold the true place, over so many boards of encodings with these
    scores, and their mean width in places."""
    rng = np.random.default_rng(seeds)
    truth = np.array([true_score(rng, one) for one in profiles])
    first = 1 + (truth > truth[:, None]).sum(1)
    last = len(truth) - (truth < truth[:, None]).sum(1)
    ends = []
    for _ in range(boards):
        groups = [[drawn_scores(rng, *task, seeds) for task in one] for one in profiles]
        chances = pd.DataFrame({index: bootstrap(own) for index, own in enumerate(groups)})
        ends.append([*Ranking({}, better_than(chances)).intervals.values()])
    low, high = np.moveaxis(np.array(ends), -1, 0)
    return float(((low <= last) & (high >= first)).mean()), float((high - low + 1).mean())


def of_scores(profile: Profile, seeds: int, equals: int) -> tuple[float, float]:
    """Of so many encodings with the same distribution of scores: the share of intervals that hold its
    interquartile mean, and of pairs of which one is called better."""
    rng, names = np.random.default_rng(seeds), [f"equal {number}" for number in range(equals)]
    truth = true_score(rng, profile)
    scores = [drawn_scores(rng, *task, equals * seeds) for task in profile]
    ranking = ranking_of_scores(pd.DataFrame({
        "task": np.repeat(range(len(profile)), equals * seeds),
        "encoding": np.tile(np.repeat(names, seeds), len(profile)), "score": np.concatenate(scores),
    }))  # fmt: skip
    kept = np.mean([own.low <= truth <= own.high for own in ranking.values.values()])
    return float(kept), float(ranking.better.to_numpy().sum() / (equals * (equals - 1) / 2))


def measured_profiles(least: float = 0.0) -> list[Profile]:
    """The mean and the variance over seeds in each task of the leaderboard, of each decoder with at least
    this score."""
    board = read_boards(results.read_studies(results.STUDIES), results.OUT).tasks
    each = board.scores.groupby(["encoding", "task"], sort=False)["score"].agg(["mean", "var"])
    values = board.ranking.values
    return [[*each.loc[name].itertuples(index=False)] for name, one in values.items() if one.value >= least]


def table(head: Sequence[object], rows: Sequence[tuple[str, Sequence[float]]]) -> Iterator[str]:
    yield f"| {' | '.join(map(str, head))} |"
    yield f"|---|{'--:|' * (len(head) - 1)}"
    yield from (
        f"| {name} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |" for name, shares in rows
    )
    yield ""


def main(repetitions: int = 4000) -> None:
    n = repetitions
    paired = [
        (0.997, 0.99, 1),
        (1.0, 0.999, 1),
        (1.0, 1.0, 1),
        (0.5, 0.45, 0.5),
        (0.9, 0.1, 0),
        (0.6, 0.5, -1),
    ]
    mixed = [(0.02, 0.05, 0.02), (0.0, 0.05, 0.02), (0.05, 0.02, 0.02), (0.01, 0.02, 0.1)]
    rates, seeds = (0.5, 0.9, 0.99, 0.997, 0.999), [(s, d) for s in (2, 3, 5) for d in (10, 60)]
    kept, apart = np.mean([of_scores(one, SEEDS, 20) for one in measured_profiles(least=0.02)], axis=0)
    lines = [
        *table(["documents", *COUNTS], [
            ("loss", [of_documents(one, n) for one in COUNTS]),
            ("loss, long documents easier", [of_documents(one, n, -0.05) for one in COUNTS]),
            ("paired difference", [of_paired_documents(one, n) for one in COUNTS]),
        ]),
        *table(["blocks of one text", 4, 8, 16, 32], [
            (f"correlated over {share} of a block", [of_blocks(one, n, share) for one in (4, 8, 16, 32)])
            for share in (0.05, 0.1, 0.25, 0.5)
        ]),
        *table(["rate of 1,024 examples", *rates], [("accuracy", [of_rate(one, n) for one in rates])]),
        *table(["two rates, share of common draws", *(f"{a}, {b}, {c}" for a, b, c in paired)], [
            ("paired difference", [of_paired_rates(*one, n) for one in paired]),
        ]),
        *table(["seeds, documents", *(f"{s}, {d}" for s, d in seeds)], [
            (", ".join(map(str, one)), [of_seeds_and_documents(*size, one, n // 2) for size in seeds])
            for one in mixed
        ]),
        *table(["seeds of each task", SEEDS], [
            ("score", [kept]), ("equal encodings called different", [apart]),
            ("place", [of_places(measured_profiles(), SEEDS, 60)[0]]),
        ]),
    ]  # fmt: skip
    print("\n".join(lines))


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    main()
