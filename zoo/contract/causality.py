"""Laws of causality, padding, and decoding with a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import accumulate, cycle, islice, pairwise

import torch
from torch import Tensor

from zoo.contract.hook_outputs import first_difference
from zoo.contract.law import CAUSAL, PADDED, REPEATS, Outcome, beyond, failed, farthest, law, passed, within
from zoo.contract.subject import LENGTH, VOCABULARY, Subject, decoders, encoders, keep_of, some_tokens
from zoo.models.cache import Cache
from zoo.models.transformer import Transformer

CACHED = "cached decoding equals the full forward"
EQUAL = 1e-5
OTHER_POSITIONS = "differs while decoding, where new tokens begin at their own positions and not at 0"


@law(
    CAUSAL, "Changing a later token changes no output of a decoder; changing the token itself does.", decoders
)
def causality(subject: Subject) -> Iterator[Outcome]:
    row = subject.tokens(1, 13)
    length = row.shape[1]
    # In row t the tokens from t on are changed.
    same = row.repeat(length, 1)  # the same batch, so that a product of matrices rounds the same
    changed = same.clone()
    for t in range(length):
        changed[t, t:] = (changed[t, t:] + 1) % VOCABULARY
    for setting in subject.windows(5):
        model = subject.model(**setting)
        before, after = model(same), model(changed)
        for t in range(length):
            earlier = within(farthest(after[t, :t], before[t, :t]), EQUAL)
            steps = [partial(model, row)], [partial(model, changed[t : t + 1])]
            found = None if earlier.passed else first_difference(model, *steps, slice(t))
            what = found and f"{found[0]} depends on a later token: {earlier.numbers}"
            yield failed(what, found[1]) if found else earlier
            yield beyond(farthest(after[t, t], before[t, t]), 1e-3, "its own token moves it by")


@law(
    "an encoder attends in both directions",
    "In an encoder the first output depends on the last token, and the last output on the first token.",
    encoders,
)
def both_ends(subject: Subject) -> Iterator[Outcome]:
    model, row = subject.model(), subject.tokens(1, 7)
    before = model(row)
    for changed_at, seen_at in ((0, -1), (-1, 0)):
        changed = row.clone()
        changed[0, changed_at] += 1
        yield beyond(farthest(model(changed % VOCABULARY)[0, seen_at], before[0, seen_at]), EQUAL, "moved by")


@law(REPEATS, "Two passes in evaluation mode are identical and draw no random number.")
def deterministic(subject: Subject) -> Iterator[Outcome]:
    model, row = subject.model(), subject.tokens(2, 13)
    state = torch.get_rng_state()
    one = model(row)
    drawn, again = not torch.equal(state, torch.get_rng_state()), within(farthest(model(row), one), 0.0)
    if drawn or not again.passed:
        what, where = first_difference(model, [partial(model, row)], [partial(model, row)]) or ("it", "")
        cause = "draws random numbers in evaluation: draw if self.training only" if drawn else "changes"
        yield failed(f"{what} {cause}; {again.numbers}", where)
    yield again


@torch.no_grad()
def decoded(
    model: Transformer, row: Tensor, chunks: int | Sequence[int], keep: Tensor | None = None
) -> Tensor:
    """The logits of a row that is decoded with a cache, in chunks of so many tokens."""
    cache = Cache(model.num_layers)
    parts = row.split(chunks, 1)
    # Padding lies in the first part.
    keeps = [None if keep is None else keep[:, : parts[0].shape[1]], *[None] * (len(parts) - 1)]
    return torch.cat([model(part, one, cache) for part, one in zip(parts, keeps, strict=True)], 1)


def _chunks(length: int, *sizes: int) -> list[int]:
    """Chunks of these sizes in turn, of so many tokens together."""
    ends = [min(end, length) for end in accumulate(islice(cycle(sizes), max(length, 0)))]
    return [end - begin for begin, end in pairwise([0, *ends]) if end > begin]


def refuses(what: str, run: Callable[[], object], named: str) -> Outcome:
    """Passes where a run is refused with a message that names something."""
    try:
        run()
    except ValueError as error:
        if named not in str(error):
            return failed(f"refuses {what}, but the message is: {error}")
        return passed(f"refuses {what}")
    return failed(f"{what} are not refused")


def _equal(model: Transformer, outputs: Callable[[Transformer], tuple[Tensor, Tensor]]) -> Outcome:
    """Whether two outputs of a model are equal. A difference in float32 is measured again in float64, where a
    fault stays and the rounding of large logits does not."""
    finding = within(farthest(*outputs(model)), EQUAL)
    return finding if finding.passed else within(farthest(*outputs(deepcopy(model).double())), EQUAL)


@law(
    CACHED,
    "Decoding token by token and in chunks equals one pass over all tokens, also past the trained length and "
    "after padding on the left; a cache is refused from the length that the encoding declares.",
    decoders,
    needs=(PADDED, CAUSAL, REPEATS),
)
def cached_decoding(subject: Subject) -> Iterator[Outcome]:
    longest = subject.stack.max_cached_length
    row = subject.tokens(2, LENGTH + 8)[:, :longest]
    length = row.shape[1]
    padded = torch.arange(length) >= torch.tensor([[0], [3]])
    mixed, after_padding = _chunks(length, 1, 1, 1, 5), [6, *_chunks(length - 6, 1, 1, 4)]
    for setting in subject.windows(4):
        model = subject.model(**setting)
        for chunks in ([mixed] if setting else [1, 5]) if length else ():
            finding = _equal(model, lambda one, chunks=chunks: (decoded(one, row, chunks), one(row)))
            if not finding.passed:
                cache = Cache(model.num_layers)
                steps = [partial(model, part, cache=cache) for part in row.split(chunks, 1)]
                last = slice(-row.split(chunks, 1)[-1].shape[1], None)
                found = first_difference(model, [partial(model, row)], steps, last)
                if found:
                    yield failed(f"{found[0]} {OTHER_POSITIONS}; {finding.numbers}", found[1])
            yield finding
        if length > 6:
            yield _equal(
                model,
                lambda one: (decoded(one, row, after_padding, padded)[padded], one(row, padded)[padded]),
            )
        limit = model.encoding.max_length
        if longest is not None and (limit is None or limit > longest):
            # At once, and the last token alone.
            for chunk in {longest + 1, longest} - {0}:
                what = f"{longest + 1} tokens with a cache, where max_cached_length is {longest},"
                yield refuses(what, partial(decoded, model, subject.tokens(1, longest + 1), chunk), "cache")


@law(
    "padding changes nothing",
    "A sequence with padding on the left or right has the outputs of the unpadded one, alone and in a batch "
    "with a longer sequence, also beyond the trained length; with a relative encoding even if padding takes "
    "up positions.",
    needs=(PADDED, CAUSAL, REPEATS),
)
def padding_has_no_effect(subject: Subject) -> Iterator[Outcome]:
    model = subject.model()
    limit = model.encoding.max_length
    # The second pair lies beyond the trained length.
    for short, long in ((9, 14), (LENGTH + 4, LENGTH + 12)):
        if limit is not None and long > limit:
            continue
        pad, row, longer = long - short, subject.tokens(1, short), subject.tokens(1, long)
        expected, padding = model(row), subject.tokens(1, pad)
        on_the_right = model(torch.cat((row, padding), 1), torch.arange(long)[None] < short)
        yield within(farthest(on_the_right[:, :short], expected), EQUAL)
        padded = torch.cat((padding, row), 1)
        keep = torch.arange(long)[None] >= pad
        yield within(farthest(model(padded, keep)[:, pad:], expected), EQUAL)
        together = model(torch.cat((padded, longer)), torch.cat((keep, torch.ones_like(keep))))
        yield within(farthest(together[0, pad:], expected[0]), EQUAL)
        yield within(farthest(together[1], model(longer)[0]), EQUAL)
        if subject.relative and not any(encoding.uses("positions") for encoding in subject.encodings):
            counted = model(padded, keep, positions=torch.arange(long))
            yield within(farthest(counted[:, pad:], expected), EQUAL)


@law(
    "separate documents are read alone",
    "Each document of a window has the outputs that it has by itself, also beyond the trained length; in "
    "training too if no random number is drawn.",
    needs=(PADDED, REPEATS),
)
def separate_documents(subject: Subject) -> Iterator[Outcome]:
    model = subject.model()
    for training in (False, True):
        longest = model.train(training).encoding.max_length or LENGTH + 12
        sizes = torch.tensor([[9, LENGTH + 12, 1, 5], [LENGTH + 12, 5, 9, 1]]).clamp(max=longest)
        begins = sizes.cumsum(1) - sizes
        documents = torch.stack(list(map(torch.repeat_interleave, begins, sizes)))
        row = some_tokens(*documents.shape)
        together = model(row, documents=documents)
        if not torch.equal(model(row, documents=documents), together):
            return
        for b, begin, size in zip((0, 1), begins, sizes, strict=True):
            for own in map(slice, begin, begin + size):
                yield within(farthest(together[b, own], model(row[b : b + 1, own])[0]), EQUAL)


@law(
    "gradients are finite with padding",
    "Every gradient is finite in a batch with padding, and with a sequence that is all padding.",
    needs=(PADDED,),
)
def padding_and_gradients(subject: Subject) -> Iterator[Outcome]:
    row = subject.tokens(3, 9)
    for padding in ((0, 4, 8), (0, 4, 9)):
        model, keep = subject.model().train(), keep_of(padding, 9)
        out: Tensor = model(row, keep)[keep]
        out.square().mean().backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and not parameter.grad.isfinite().all():
                yield failed(f"the gradient of {name} is not finite")
    yield passed()
