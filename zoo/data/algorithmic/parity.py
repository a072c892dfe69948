"""Parity: is the number of ones odd?"""

from __future__ import annotations

from zoo.data.algorithmic import Algorithmic
from zoo.data.draws import Chance
from zoo.registry import register


@register.dataset("parity")
class Parity(Algorithmic):
    """Say whether the number of ones among random bits is odd.

    `1 0 1 1` is answered by `1`, for odd; an even number of ones by `0`.

    Every bit can turn the answer round, and their order says nothing. A guess is right half of the time. For
    a transformer of constant depth this is among the hardest: what one bit can change shrinks with the length
    (Hahn 2020, arXiv:1906.06755).

    Source: Deletang et al. 2023 (arXiv:2207.02098), "parity check"; also Kazemnejad et al. 2023
    (arXiv:2305.19466), section 3. Bits are uniform and independent, as in both.
    """

    symbols = 2

    def lengths(self, size: int) -> tuple[int, int]:
        return size, 1

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        bits = chance.numbers(size, 2)
        return bits, [sum(bits) % 2]
