"""Flip-flop: remember what was last written."""

from __future__ import annotations

from zoo.data.algorithmic import Algorithmic
from zoo.data.draws import Chance, unit
from zoo.field_types import Fraction, Several
from zoo.registry import register

WRITE, IGNORE, READ = range(3)
FIRST_VALUE = 3


@register.dataset("flip_flop")
class FlipFlop(Algorithmic):
    """Say what was last written among instructions to write, ignore and read.

    `write 1 ignore 0 read 1 ignore 0` is answered by `1`.

    The size is the number of instructions, the final read among them: that one is the mark which asks for the
    answer. Each other instruction is followed by a symbol: what is written, what is to be ignored, and after
    `read` what was last written. The first instruction writes; the others write or read with probability
    (1 - ignore_probability) / 2 each. Written and ignored symbols are uniform.

    Source: the language FFL(p) of Liu et al. 2023 (arXiv:2306.00946), section 3: trained with 0.8 to ignore,
    and tested there with 0.98 (few writes, far back) and 0.1 (many). There are two symbols, 256 instructions,
    and every read is scored; here the final one alone, so that an example is right or wrong. The
    other reads stay in the question as true ones.

    Args:
        ignore_probability: probability of an instruction to ignore.
        num_symbols: symbols that can be written.
    """

    smallest = 2

    def __init__(self, *, ignore_probability: Fraction = 0.8, num_symbols: Several = 2):
        self.ignore = ignore_probability
        self.values = num_symbols
        self.symbols = FIRST_VALUE + num_symbols

    def lengths(self, size: int) -> tuple[int, int]:
        return 2 * (size - 1), 1

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        count = size - 1
        question, memory = [], 0
        values = chance.numbers(count, self.values)
        for index, (drawn, value) in enumerate(zip(unit(chance.words(count)).tolist(), values, strict=True)):
            if index == 0 or drawn < (1 - self.ignore) / 2:
                instruction, memory = WRITE, value
            elif drawn < 1 - self.ignore:
                instruction, value = READ, memory
            else:
                instruction = IGNORE
            question += [instruction, FIRST_VALUE + value]
        return question, [FIRST_VALUE + memory]
