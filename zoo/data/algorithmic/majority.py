"""Majority: which of two symbols comes more often?"""

from __future__ import annotations

from zoo.data.algorithmic import Algorithmic
from zoo.data.draws import Chance
from zoo.registry import register


@register.dataset("majority")
class Majority(Algorithmic):
    """Say which of two symbols is the more frequent.

    `1 0 1` is answered by `1`.

    Size n stands for 2n - 1 bits, an odd number, so that there is no tie. Bits are uniform and independent:
    the two counts differ by about the root of the length, which attention that averages over all tokens must
    tell apart in an ever smaller difference of means. A guess is right half of the time; order says nothing.

    Source: the language MAJ of circuit theory, which averaging attention recognises (Merrill, Sabharwal and
    Smith 2022, arXiv:2106.16213). There a tie counts as no majority.
    """

    symbols = 2

    def lengths(self, size: int) -> tuple[int, int]:
        return 2 * size - 1, 1

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        bits = chance.numbers(2 * size - 1, 2)
        return bits, [int(sum(bits) >= size)]
