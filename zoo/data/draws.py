"""Random numbers that depend on what they are for, and on nothing else.

Every draw is named by a key (seed, purpose, ...) and a place, and comes from numpy's Philox counter
generator. Only its raw 64-bit words are used: numpy promises that those never change, which it does not
promise of `Generator.permutation` and the like. So a draw is the same on every machine, rank, worker and
numpy.
"""

from __future__ import annotations

import hashlib

import numpy as np

UNIT = 2.0**-53


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
