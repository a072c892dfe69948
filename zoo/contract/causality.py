"""Laws of causality, padding, and decoding with a cache."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from zoo.contract.hook_outputs import leak
from zoo.contract.law import (
    CAUSAL,
    PADDED,
    REPEATS,
    Finding,
    all_of,
    beyond,
    broken,
    decoders,
    encoders,
    farthest,
    held,
    law,
    within,
)
from zoo.contract.small_model import LENGTH, VOCABULARY, Subject
from zoo.models.cache import Cache
from zoo.models.transformer import Transformer

CACHED = "cached decoding equals the full forward"
EQUAL = 1e-5
WINDOWS = (None, 5)


@law(
    CAUSAL, "Changing a later token changes no output of a decoder; changing the token itself does.", decoders
)
def causality(subject: Subject) -> Finding:
    length = subject.at_most(12)
    row = subject.tokens(1, length)
    # In row t the tokens from t on are changed.
    changed = row.repeat(length, 1)
    for t in range(length):
        changed[t, t:] = (changed[t, t:] + 1) % VOCABULARY
    findings = []
    for window in WINDOWS:
        model = subject.model(window=window)
        before, after = model(row), model(changed)
        for t in range(length):
            findings.append(within(farthest(after[t, :t], before[0, :t]), EQUAL))
            findings.append(beyond(farthest(after[t, t], before[0, t]), 1e-3, "its own token moves it by"))
    worst = _worst(findings, "largest")
    if worst.held:
        return worst
    culprit, where = leak(subject.model(), row, changed[length // 2 : length // 2 + 1], length // 2)
    return replace(worst, numbers=f"{culprit}: {worst.numbers}", where=where) if culprit else worst


def _worst(findings: list[Finding], prefix: str) -> Finding:
    """The worst; if all held, the worst of those whose numbers begin with `prefix`."""
    worst = all_of(findings)
    return worst if not worst.held else all_of([f for f in findings if f.numbers.startswith(prefix)])


@law(
    "an encoder attends in both directions",
    "In an encoder the first output depends on the last token, and the last output on the first token.",
    encoders,
)
def both_ends(subject: Subject) -> Finding:
    model, row = subject.model(), subject.tokens(1, 12)
    before, findings = model(row), []
    for changed_at, seen_at in ((0, -1), (-1, 0)):
        changed = row.clone()
        changed[0, changed_at] += 1
        moved = farthest(model(changed % VOCABULARY)[0, seen_at], before[0, seen_at])
        findings.append(beyond(moved, 1e-5, "moved by"))
    return all_of(findings)


@law(REPEATS, "Two passes in evaluation mode are identical and draw no random number.")
def deterministic(subject: Subject) -> Finding:
    model, row = subject.model(), subject.tokens(2, 12)
    state = torch.get_rng_state()
    one = model(row)
    if not torch.equal(state, torch.get_rng_state()):
        return broken("it draws from the global generator")
    return within(farthest(model(row), one), 0.0)


@law(
    CACHED,
    "Decoding token by token and in chunks equals one pass over all tokens, also past the trained length; "
    "a cache is refused from the length that the encoding declares.",
    decoders,
    needs=(PADDED, CAUSAL, REPEATS),
)
def cached_decoding(subject: Subject) -> Finding:
    findings = []
    for window in (None, 4):
        model = subject.model(window=window)
        length, refused = _decodable(model)
        if length:
            row = subject.tokens(2, length)
            full = model(row)
            for chunks in ([1] * length, _chunks(length)):
                cache = Cache(model.num_layers)
                steps = torch.cat([model(part, cache=cache) for part in row.split(chunks, 1)], 1)
                findings.append(within(farthest(steps, full), EQUAL))
        if refused is not None:
            findings.append(_refuses(subject, model, refused))
    return _worst(findings, "largest") if length else all_of(findings)


def _decodable(model: Transformer) -> tuple[int, int | None]:
    """How many tokens to decode, past the trained length where it may be; and where it must be refused."""
    stack = model.encoding
    ends = [end for end in (stack.max_length, stack.max_cached_length) if end is not None]
    longest = min([*ends, LENGTH + 8])
    return longest, (stack.max_cached_length + 1 if stack.max_cached_length is not None else None)


def _chunks(length: int) -> list[int]:
    """5, 1, 1, 3, 2 and the rest: of several tokens and of one, in turn."""
    chunks, left = [], length
    for size in (5, 1, 1, 3, 2, length):
        size = min(size, left)
        chunks += [size] if size else []
        left -= size
    return chunks


def _refuses(subject: Subject, model: Transformer, length: int) -> Finding:
    """A cache beyond the encoding's `max_cached_length` is refused, at once and token by token."""
    limit = model.encoding.max_length
    if limit is not None and length > limit:
        return held(f"it ends at {limit}")
    for chunks in ([length], [length - 1, 1]):
        cache = Cache(model.num_layers)
        try:
            for part in subject.tokens(1, length).split([c for c in chunks if c], 1):
                model(part, cache=cache)
        except ValueError as error:
            if "cache" not in str(error):
                raise
            continue
        return broken(
            f"{length} tokens with a cache are not refused, though max_cached_length is {length - 1}"
        )
    return held(f"a cache is refused from {length} tokens on")


@law(
    "cached decoding works with padding",
    "Cached decoding equals the full forward after padding on the left too.",
    decoders,
    needs=(CACHED,),
)
def cached_after_padding(subject: Subject) -> Finding:
    model, row = subject.model(), subject.tokens(2, 12)
    if _decodable(model)[0] < 12:
        return held(f"a cache ends at {_decodable(model)[0]}")
    keep = torch.arange(12)[None] >= torch.tensor([[0], [3]])
    cache = Cache(model.num_layers)
    steps = [model(row[:, :6], keep[:, :6], cache)]
    steps += [model(row[:, t : t + 1], cache=cache) for t in range(6, 12)]
    return within(farthest(torch.cat(steps, 1)[keep], model(row, keep)[keep]), EQUAL)


@law(
    "padding on the left changes nothing",
    "A padded sequence has the outputs of the unpadded one, alone and beside a longer sequence, within "
    "the trained length and beyond; with a relative encoding even if padding takes up positions.",
    needs=(PADDED, CAUSAL, REPEATS),
)
def padding_on_the_left(subject: Subject) -> Finding:
    model, differences = subject.model(), []
    limit = model.encoding.max_length
    # The second pair lies beyond the trained length.
    for short, long in ((9, 14), (LENGTH + 4, LENGTH + 12)):
        if limit is not None and long > limit:
            continue
        pad, row, longer = long - short, subject.tokens(1, short), subject.tokens(1, long)
        expected = model(row)
        padded = torch.cat((subject.tokens(1, pad), row), 1)
        keep = torch.arange(long)[None] >= pad
        together = model(torch.cat((padded, longer)), torch.cat((keep, torch.ones_like(keep))))
        differences += [
            farthest(model(padded, keep)[:, pad:], expected),
            # Beside a sequence without padding.
            farthest(together[0, pad:], expected[0]),
            farthest(together[1], model(longer)[0]),
        ]
        if subject.relative and not any(encoding.uses("positions") for encoding in subject.encodings):
            counted = model(padded, keep, positions=torch.arange(long))
            differences.append(farthest(counted[:, pad:], expected))
    return within(max(differences), EQUAL)


@law(
    "padding on the right changes nothing",
    "Padding after the end of a sequence does not affect its outputs.",
    needs=(PADDED, CAUSAL, REPEATS),
)
def padding_on_the_right(subject: Subject) -> Finding:
    model, row = subject.model(), subject.tokens(1, 9)
    padded = torch.cat((row, subject.tokens(1, 5)), 1)
    return within(farthest(model(padded, torch.arange(14)[None] < 9)[:, :9], model(row)), EQUAL)


@law(
    "gradients are finite with padding",
    "Every gradient is finite beside padding and beside a sequence that is all padding.",
    needs=(PADDED,),
)
def padding_and_gradients(subject: Subject) -> Finding:
    row = subject.tokens(3, 9)
    largest = 0.0
    for starts in ((0, 4, 8), (0, 4, 9)):
        model = subject.model().train()
        keep = torch.arange(9)[None] >= torch.tensor(starts)[:, None]
        out: Tensor = model(row, keep)[keep]
        out.square().mean().backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                continue
            if not parameter.grad.isfinite().all():
                return broken(f"the gradient of {name} is not finite")
            largest = max(largest, parameter.grad.abs().max().item())
    return held(f"largest gradient {largest:.2g}")
