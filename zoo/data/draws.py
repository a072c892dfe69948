"""Random numbers that depend on their purpose alone.

Every draw is named by a key (seed, purpose, ...) and a row, and comes from numpy's Philox counter generator.
Only its raw 64-bit words are used: numpy promises that those never change, which it does not promise of
`Generator.permutation` and the like. So a draw is the same on every machine, rank, worker and numpy.

Drawn examples are not stored, so a fixed hash of a prompt decides whether it is held out for evaluation and
validation. Training draws again until a prompt is on its side, evaluation until it is on the other. The side
depends on nothing else: runs of any seed, length or number of steps are judged on prompts that none of them
was trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

UNIT = 2.0**-53

ONE_IN = 4
"""One prompt in four is held out. Fewer would repeat in the evaluation of short prompts; more would be lost
to training."""


class Draws:
    """A table of random words, addressed by row and column; any piece of it is drawn without the rest."""

    def __init__(self, *key: int | str):
        digest = hashlib.sha256(repr(key).encode()).digest()
        self._philox = np.random.Philox(key=np.frombuffer(digest[:16], dtype=np.uint64))
        self._fresh = self._philox.state

    def words(self, count: int, row: int = 0, start: int = 0) -> np.ndarray:
        """`count` uniform uint64 of `row`, from its word `4 * start` on."""
        # Setting the counter costs 1 us; a new generator for every row would cost 7.
        self._fresh["state"]["counter"] = np.array([start, row, 0, 0], dtype=np.uint64)
        self._philox.state = self._fresh
        return self._philox.random_raw(count)

    def permutation(self, size: int) -> np.ndarray:
        """The numbers 0..size-1 in random order, int64."""
        return np.argsort(self.words(size), kind="stable")


def below(words: np.ndarray, limit: int) -> np.ndarray:
    """Words turned to integers 0..limit-1, int64. `limit` is at most 2**31, the bias limit / 2**32."""
    return (((words >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32)).astype(np.int64)


def unit(words: np.ndarray) -> np.ndarray:
    """Words turned to float64 in [0, 1)."""
    return (words >> np.uint64(11)) * UNIT


class Chance:
    """Choices from one row of a table of random words, each from words that no other has used.

    Args:
        draws: the table.
        row: which row.
        ahead: words drawn at a time for single choices, a multiple of 4. Another number gives other choices.
    """

    def __init__(self, draws: Draws, row: int, ahead: int = 1024):
        self._draws, self._row, self._ahead = draws, row, ahead
        self._used = 0  # in counters, which give four words each
        self._words: list[int] = []

    def words(self, count: int) -> np.ndarray:
        """`count` uniform uint64."""
        start = self._used
        self._used += -(-count // 4)
        return self._draws.words(count, row=self._row, start=start)

    def below(self, limit: int) -> int:
        """A number from 0 to limit-1."""
        if not self._words:
            self._words = self.words(self._ahead).tolist()
        return ((self._words.pop() >> 32) * limit) >> 32

    def numbers(self, count: int, limit: int) -> list[int]:
        """`count` numbers from 0 to limit-1, independent of each other."""
        return below(self.words(count), limit).tolist()

    def distinct(self, count: int, limit: int) -> list[int]:
        """`count` different numbers from 0 to limit-1, in random order. Raises ValueError for too many."""
        if count > limit:
            raise ValueError(f"{count} different numbers below {limit}")
        return np.argsort(self.words(limit), kind="stable")[:count].tolist()

    def one(self, choices: Sequence):
        return choices[self.below(len(choices))]

    def few(self, choices: Sequence, count: int) -> list:
        """`count` different ones."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(count)]


def is_held_out(prompt: Sequence[int] | np.ndarray) -> bool:
    """Whether a prompt, given by its tokens, is for evaluation and validation and not for training."""
    # A cryptographic hash: a checksum such as CRC is linear over GF(2), so the side would depend on the
    # parity of bits of the prompt, which is the answer of some tasks.
    tokens = np.asarray(prompt, dtype="<i8").tobytes()
    return hashlib.blake2b(tokens, digest_size=1).digest()[0] < 256 // ONE_IN
