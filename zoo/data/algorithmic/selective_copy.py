"""Selective copy: say again the few symbols that are strewn among noise."""

from __future__ import annotations

from zoo.data.algorithmic import Algorithmic
from zoo.data.draws import Chance
from zoo.field_types import Positive, Several
from zoo.registry import register

NOISE = 0


@register.dataset("selective_copy")
class SelectiveCopy(Algorithmic):
    """Say again the few symbols that are strewn among noise.

    `. c . . a b .` is answered by `c a b`.

    The size is the length of the question. It holds `num_data` symbols at positions drawn uniformly, whatever
    its length, and one and the same noise token elsewhere. What is to be remembered so stays the same; what
    grows is how far apart it lies. Symbols are uniform and independent.

    Source: Gu and Dao 2023 (arXiv:2312.00752), section 4.1.1: 16 symbols at 4096 positions, from 16 tokens
    with the noise. There all examples are of one length.

    Args:
        num_data: symbols to be copied.
        num_symbols: symbols that there are besides the noise.
    """

    def __init__(self, *, num_data: Positive = 16, num_symbols: Several = 15):
        self.smallest = self.num_data = num_data
        self.values = num_symbols
        self.symbols = 1 + num_symbols

    def lengths(self, size: int) -> tuple[int, int]:
        return size, self.num_data

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        data = [1 + value for value in chance.numbers(self.num_data, self.values)]
        question = [NOISE] * size
        for position, symbol in zip(sorted(chance.distinct(self.num_data, size)), data, strict=True):
            question[position] = symbol
        return question, data
