"""Laws of positions: shift invariance, float positions, and the longest sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from zoo.contract.causality import refuses
from zoo.contract.law import (
    CHANGES,
    PADDED,
    REACHES,
    REPEATS,
    SHAPES,
    Outcome,
    beyond,
    failed,
    farthest,
    law,
    only,
    passed,
    within,
)  # fmt: skip
from zoo.contract.subject import LENGTH, Subject
from zoo.models.cache import Cache


@law(
    "a relative encoding is shift-invariant",
    "Shifting all positions by 7 or by 1001 leaves the outputs as they were.",
    only("it does not claim to be relative", lambda subject: subject.relative),
    needs=(PADDED, REPEATS, CHANGES),
)
def shift_invariance(subject: Subject) -> Iterator[Outcome]:
    yield within(_moved(subject, 7, 1001), 2e-4)


@law(
    "an absolute encoding is not shift-invariant",
    "Shifting all positions by 1001, or by 100,003 if positions have no limit, changes the outputs.",
    only("it claims to be relative", lambda subject: not subject.relative),
    needs=(PADDED, REPEATS, CHANGES),
)
def not_shift_invariant(subject: Subject) -> Iterator[Outcome]:
    endless = all(e.max_length is None and e.num_positions is None for e in subject.encodings)
    moved = _moved(subject, 1001, *([100_003] if endless else []))
    # A change so far below the bound is rounding.
    yield beyond(
        moved, 1e-2, "moved by" if moved > 1e-4 else "it is relative, and should declare it: moved by"
    )


def _moved(subject: Subject, *shifts: int) -> float:
    """The change of the outputs under shifts: within the trained length and, without a limit, beyond."""
    row = subject.tokens(1 + len(shifts), 13)
    ids = torch.arange(13) + torch.tensor((0, *shifts))[:, None]
    lengths = [2048]
    if all(e.max_length is None and e.max_cached_length is None for e in subject.encodings):
        lengths.append(LENGTH)
    # Default positions take another path than given ones: distances may be rows of a table.
    models = (subject.model(length=length) for length in lengths)
    return max(farthest(model(row, positions=ids), model(row)) for model in models)


@law(
    "reads_positions is declared correctly",
    "With `reads_positions = False`, any positions give the same outputs.",
    only(
        "it declares that it reads positions",
        lambda subject: not any(encoding.reads_positions for encoding in subject.encodings),
    ),
    needs=(PADDED, REPEATS),
)
def no_positions(subject: Subject) -> Iterator[Outcome]:
    model, row = subject.model(), subject.tokens(2, 13)
    anywhere = torch.randint(500, (2, 13))
    yield within(farthest(model(row, positions=anywhere), model(row)), 1e-5)


@law(
    "positions may be given as floats",
    "Integer positions given as floats give the same outputs.",
    needs=(PADDED, REPEATS),
)
def float_positions(subject: Subject) -> Iterator[Outcome]:
    model, row, ids = subject.model(), subject.tokens(2, 9), torch.arange(9)
    yield within(farthest(model(row, positions=ids.float()), model(row, positions=ids)), 1e-5)


@law(
    "the declared length limit holds",
    "A limit comes from a policy or lies beyond the trained length, and longer sequences are refused.",
    needs=(SHAPES, REACHES),
)
def beyond_training(subject: Subject) -> Iterator[Outcome]:
    trained, far = 8, 4 * LENGTH
    model = replace(subject, length=trained).model()
    limit = model.encoding.max_length
    if limit is None:
        yield passed("it has none")
        return
    declared = {encoding.extrapolates for encoding in subject.encodings}
    if "policy" not in declared and limit <= trained:
        yield failed(
            f"trained at {trained} its limit is {limit}, but `extrapolates` is {' and '.join(declared)}"
        )
    longer = torch.zeros(1, limit + 1, dtype=torch.long)
    what = f"{limit + 1} tokens"
    yield refuses(what, lambda: model(longer), what)
    if subject.kind == "decoder" and model.encoding.max_cached_length is None and limit <= far:
        cache = Cache(model.num_layers)
        model(longer[:, :-1], cache=cache)
        yield refuses(what, lambda: model(longer[:, -1:], cache=cache), what)
