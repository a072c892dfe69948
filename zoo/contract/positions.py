"""Laws of positions: shift invariance, float positions, and the longest sequence."""

from __future__ import annotations

import torch

from zoo.contract.law import (
    CHANGES,
    PADDED,
    REPEATS,
    Finding,
    all_of,
    beyond,
    broken,
    farthest,
    held,
    law,
    within,
)
from zoo.contract.small_model import LENGTH, Subject
from zoo.models.cache import Cache


def relative(subject: Subject) -> str | None:
    return None if subject.relative else "it does not claim to be relative"


def absolute(subject: Subject) -> str | None:
    return "it claims to be relative" if subject.relative else None


@law(
    "a relative encoding is shift-invariant",
    "Shifting all positions by 7 or by 1001 leaves the outputs as they were.",
    relative,
    needs=(PADDED, REPEATS, CHANGES),
)
def shift_invariance(subject: Subject) -> Finding:
    return within(max(_moved(subject, 7, 1001)), 2e-4)


@law(
    "an absolute encoding is not shift-invariant",
    "Shifting all positions by 1001, or by 100,003 if positions have no limit, changes the outputs.",
    absolute,
    needs=(PADDED, REPEATS, CHANGES),
)
def not_shift_invariant(subject: Subject) -> Finding:
    endless = all(e.max_length is None and e.num_positions is None for e in subject.encodings)
    moved = max(_moved(subject, 1001, *([100_003] if endless else [])))
    # A change so far below the bound is rounding.
    hint = "moved by" if moved > 1e-4 else "it is relative, and should declare it: moved by"
    return beyond(moved, 1e-2, hint)


def _moved(subject: Subject, *shifts: int) -> list[float]:
    """How much the outputs change under shifts: within the trained length and, without a limit, beyond."""
    row = subject.tokens(1 + len(shifts), 12)
    ids = torch.arange(12) + torch.tensor((0, *shifts))[:, None]
    lengths = [2048]
    if all(e.max_length is None and e.max_cached_length is None for e in subject.encodings):
        lengths.append(LENGTH)
    # Default positions take another path than given ones: distances may be rows of a table.
    models = (subject.model(length=length) for length in lengths)
    return [farthest(model(row, positions=ids), model(row)) for model in models]


def without_positions(subject: Subject) -> str | None:
    read = any(encoding.reads_positions for encoding in subject.encodings)
    return "it declares that it reads positions" if read else None


@law(
    "reads_positions is declared correctly",
    "With `reads_positions = False`, any positions give the same outputs.",
    without_positions,
    needs=(PADDED, REPEATS),
)
def no_positions(subject: Subject) -> Finding:
    model, row = subject.model(), subject.tokens(2, 12)
    anywhere = torch.randint(500, (2, 12))
    return within(farthest(model(row, positions=anywhere), model(row)), 1e-5)


@law(
    "positions may be given as floats",
    "Integer positions given as floats give the same outputs.",
    needs=(PADDED, REPEATS),
)
def float_positions(subject: Subject) -> Finding:
    model, row, ids = subject.model(), subject.tokens(2, 9), torch.arange(9)
    return within(farthest(model(row, positions=ids.float()), model(row, positions=ids)), 1e-5)


@law(
    "the declared length limit holds",
    "Without a limit, longer sequences work; a limit comes from a policy or lies beyond the trained "
    "length, and longer sequences are refused.",
)
def beyond_training(subject: Subject) -> Finding:
    trained = 8
    model = subject.model(length=trained)
    limit, far = model.encoding.max_length, 4 * LENGTH
    if limit is None or limit > far:
        for length in (9, 32, far):
            if not model(subject.tokens(1, length)).isfinite().all():
                return broken(f"{length} tokens, trained at {trained}: not finite")
        if limit is None:
            return held(f"{far} tokens, trained at {trained}")
    declared = {encoding.extrapolates for encoding in subject.encodings}
    if "policy" not in declared and not (limit > trained and "yes" in declared):
        return broken(
            f"trained at {trained} its limit is {limit}, but `extrapolates` is {' and '.join(declared)}"
        )
    findings = [_refuses(f"{limit + 1} tokens", lambda: model(subject.tokens(1, limit + 1)))]
    if limit > far:  # too long to be tried
        return all_of(findings)
    if not model(subject.tokens(1, limit)).isfinite().all():
        return broken(f"{limit} tokens: not finite")
    if subject.kind == "decoder" and model.encoding.max_cached_length is None:
        cache = Cache(model.num_layers)
        model(subject.tokens(1, limit), cache=cache)
        findings.append(_refuses(f"{limit + 1} tokens", lambda: model(subject.tokens(1, 1), cache=cache)))
    return all_of(findings)


def _refuses(what: str, run) -> Finding:
    try:
        run()
    except ValueError as error:
        named = what in str(error)
        return Finding(named, f"refuses {what}" if named else f"refuses {what}, but the message is: {error}")
    return broken(f"{what} are not refused")
