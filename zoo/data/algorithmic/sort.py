"""Sort: put random numbers into ascending order."""

from __future__ import annotations

from zoo.data.algorithmic import Algorithmic
from zoo.data.draws import Chance
from zoo.field_types import Several
from zoo.registry import register


@register.dataset("sort")
class Sort(Algorithmic):
    """Put random numbers into ascending order.

    `3 1 3 0` is answered by `0 1 3 3`.

    It needs no order of the question, but a count: how often each number came in it, and how many of them
    were given already. Numbers are single tokens, drawn uniformly and independently, and may come again.

    Source: Deletang et al. 2023 (arXiv:2207.02098), "bucket sort", with 5 numbers there. Kazemnejad et al.
    2023 (arXiv:2305.19466), section 3, also sorts numbers of several digits.

    Args:
        num_symbols: different numbers that there are.
    """

    def __init__(self, *, num_symbols: Several = 10):
        self.symbols = num_symbols

    def lengths(self, size: int) -> tuple[int, int]:
        return size, size

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        numbers = chance.numbers(size, self.symbols)
        return numbers, sorted(numbers)
