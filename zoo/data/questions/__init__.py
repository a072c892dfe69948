"""Questions of any size with an answer: their tokens, and the sizes from which prompts are held out."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import ClassVar

from zoo.data.draws import Chance, Draws

PADDING, BEGIN, ASK = range(3)
"""Tokens of every task: the end of a row, the beginning of a prompt, the mark that asks for the answer."""

FIRST = 3
"""The token of a task's symbol 0; symbol s is token FIRST + s."""

SMALL = 1024
"""A task that has too few prompts of this size to hold any out has too few at every size."""

AHEAD = 64
"""Random words drawn at a time: an example needs few of them."""

SAMPLED, DIFFERENT = 256, 230
"""Prompts of a size are held out if this many of a sample differ. About 1200 equally likely prompts give
that. With fewer, training needs them all and evaluation would repeat itself."""


class Questions:
    """A task whose examples are a prompt and its answer, of any size.

    A subclass gives `symbols`, `lengths` and `draw`; its options are the arguments of its constructor. The
    tokens depend on the options and not on the size, so a longer example needs no untrained output.

    An example is `BEGIN question ASK answer`. The first mark lets a decoder without positions count
    (Kazemnejad et al. 2023, arXiv:2305.19466, section 5). The length of an answer is given: no mark ends it,
    because a predicted end makes models follow positions of the training lengths (Newman et al. 2020,
    arXiv:2010.07174).

    Attributes:
        symbols: number of symbols of which question and answer are made.
        smallest: the smallest size.
        asked: which tokens of an answer are predicted; the others are given, as a further question.
        format: counted up whenever the same draws give another example.
    """

    symbols: int
    smallest: int = 1
    asked: ClassVar[slice] = slice(None)
    format: ClassVar[int] = 2

    def lengths(self, size: int) -> tuple[int, int]:
        """The most symbols that a question and an answer of a size have; they grow with it."""
        raise NotImplementedError

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        """Question and answer of a random example, in symbols from 0 to `symbols` - 1."""
        raise NotImplementedError

    @property
    def vocab_size(self) -> int:
        """Number of token ids, padding included."""
        return FIRST + self.symbols

    def tokens(self, size: int) -> int:
        """The most input tokens that an example of a size needs; the answer's last token is not an input."""
        return sum(self.lengths(size)) + 1

    def largest(self, length: int) -> int:
        """The largest size of which every example fits into `length` input tokens; 0 if none fits."""
        # An example has at least as many tokens as its size says.
        sizes = range(self.smallest, max(self.smallest, length) + 1)
        fitting = bisect_right(sizes, length, key=self.tokens)
        return sizes[fitting - 1] if fitting else 0

    @cached_property
    def held_out_from(self) -> int:
        """The smallest size with enough prompts to hold some out; `sys.maxsize` if there is none.

        It depends on the options and not on the length of a run, so that all runs agree on it.
        """

        def enough(size: int) -> bool:
            draws = Draws("prompts", size)
            prompts = {tuple(self.example(size, Chance(draws, row, AHEAD))[0]) for row in range(SAMPLED)}
            return len(prompts) >= DIFFERENT

        # Large sizes are slow to draw, and most tasks have enough prompts of a small one.
        reach = 1
        while not enough(self.smallest + reach - 1):
            reach *= 2
            if reach > SMALL:
                return sys.maxsize
        sizes = range(self.smallest + reach // 2, self.smallest + reach)
        return sizes[bisect_left(sizes, True, hi=len(sizes) - 1, key=enough)]

    def example(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        """Prompt and answer of a random example, in tokens. The same draws give the same one."""
        question, answer = self.draw(size, chance)
        return [BEGIN, *[FIRST + symbol for symbol in question], ASK], [FIRST + symbol for symbol in answer]
