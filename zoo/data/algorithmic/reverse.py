"""Reverse: say a random string backwards."""

from __future__ import annotations

from zoo.data.algorithmic import Algorithmic
from zoo.data.draws import Chance
from zoo.field_types import Several
from zoo.registry import register


@register.dataset("reverse")
class Reverse(Algorithmic):
    """Say a random string backwards.

    `c a b` is answered by `b a c`.

    The next symbol stands ever farther back from where it is asked for, so that no constant distance will do.
    Symbols are drawn uniformly and independently.

    Source: Kazemnejad et al. 2023 (arXiv:2305.19466), section 3, and Deletang et al. 2023 (arXiv:2207.02098),
    "reverse string". There the first reverses words and asks for an end of the answer, the second has two
    symbols.

    Args:
        num_symbols: symbols that strings are made of.
    """

    def __init__(self, *, num_symbols: Several = 10):
        self.symbols = num_symbols

    def lengths(self, size: int) -> tuple[int, int]:
        return size, size

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        string = chance.numbers(size, self.symbols)
        return string, string[::-1]
