"""Copy: say a random string again."""

from __future__ import annotations

from zoo.data.algorithmic import Algorithmic
from zoo.data.draws import Chance
from zoo.field_types import Several
from zoo.registry import register


@register.dataset("copy")
class Copy(Algorithmic):
    """Say a random string again.

    `c a b` is answered by `c a b`.

    Symbols are drawn uniformly and independently. A string longer than there are symbols repeats itself, so
    that looking up what followed the last symbol does not do: the copy needs the position.

    Source: Kazemnejad et al. 2023 (arXiv:2305.19466), section 3, and Deletang et al. 2023 (arXiv:2207.02098),
    "duplicate string". There the first copies words in natural language and asks for an end of the answer;
    the second asks for the string twice over; here it is bare symbols, once.

    Args:
        num_symbols: symbols that strings are made of.
    """

    def __init__(self, *, num_symbols: Several = 10):
        self.symbols = num_symbols

    def lengths(self, size: int) -> tuple[int, int]:
        return size, size

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        string = chance.numbers(size, self.symbols)
        return string, string
