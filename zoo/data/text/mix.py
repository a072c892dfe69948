"""Several corpora as one: their documents in turn, so that each has its share of the bytes all the way."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from zoo.data.text import Corpus, encoded
from zoo.errors import InputError, Problem


def mix(corpora: Sequence[Corpus], weights: Sequence[float]) -> Corpus:
    """A corpus of which `weights` are the shares of bytes, in every split.

    It ends where the first corpus is used up: nothing is repeated. The next document is of the corpus that is
    furthest behind its share; the last one of a corpus is cut at a space. All depends on the corpora and the
    weights alone.

    Args:
        weights: above zero; they need not add up to one.

    Raises:
        InputError: two of the corpora are the same, or, when documents are asked for, one has no text in that
            split.
    """
    shares = [weight / sum(weights) for weight in weights]
    for number, corpus in enumerate(corpora):
        if corpus.identity in [other.identity for other in corpora[:number]]:
            message = (
                f"{corpus.name} is named twice: what trains one validates the other; give it more weight"
            )
            raise InputError(Problem(message, key="data.of"))

    @functools.cache
    def sizes(split: str) -> list[int]:
        return [sum(map(len, encoded(corpus.documents(split), corpus.name))) for corpus in corpora]

    def documents(split: str) -> Iterator[str]:
        counted = sizes(split)
        if split == "test" and not all(counted):
            return  # some corpora have none: a part of them would be another mixture
        for corpus, count in zip(corpora, counted, strict=True):
            if not count:
                raise InputError(Problem(f"{corpus.name} has no text in its {split} split", key="data.of"))
        total = min(count / share for count, share in zip(counted, shares, strict=True))
        limits = [int(total * share) for share in shares]
        streams = [corpus.documents(split) for corpus in corpora]
        taken = [0] * len(corpora)
        while open_ones := [one for one, limit in enumerate(limits) if taken[one] < limit]:
            behind = min(open_ones, key=lambda one: taken[one] / shares[one])
            document = next(streams[behind], None)
            if document is None:
                taken[behind] = limits[behind]
                continue
            room = limits[behind] - taken[behind]
            size = len(document.encode())
            taken[behind] += size
            text = document if size <= room else _cut(document, room)
            if text.strip():
                yield text

    def split() -> str:
        parts = [f"{share:.3g} {corpus.name}" for share, corpus in zip(shares, corpora, strict=True)]
        own = [f"{corpus.name}: {rule}" for corpus in corpora if (rule := corpus.split())]
        return "; ".join([f"of the bytes {', '.join(parts)}", *own])

    identity = ["mix", shares, [[corpus.name, corpus.identity] for corpus in corpora]]
    newlines = all(corpus.newline_is_word for corpus in corpora)
    return Corpus("mix", identity, documents, newline_is_word=newlines, split=split)


def _cut(document: str, size: int) -> str:
    """The beginning of a document, of at most `size` bytes, up to the last white space in it."""
    text = document.encode()[:size].decode(errors="ignore")
    end = max(text.rfind(" "), text.rfind("\n")) + 1
    return text[:end] or text
