"""Addition: the sum of two numbers of equally many digits."""

from __future__ import annotations

from typing import Literal

from zoo.data.algorithmic import Algorithmic
from zoo.data.draws import Chance
from zoo.registry import register

PLUS = 10


@register.dataset("addition")
class Addition(Algorithmic):
    """Add two numbers of equally many digits.

    `0 7 + 9 5` is answered by `1 0 2`; with reversed order by `2 0 1`.

    The size is the number of digits of each operand; the answer has one more. All three are padded with
    leading zeros, and every digit of the operands is drawn uniformly and independently, so that numbers are
    uniform and long carries are rare. In standard order the first digit of the answer depends on all of both
    operands; in reversed order each depends on one digit of each and a carry.

    Source: Kazemnejad et al. 2023 (arXiv:2305.19466), section 3, without the padding; the reversed order is
    that of Lee et al. 2023 (arXiv:2307.03381), where the operands are left in standard order too.

    Args:
        order: "standard" begins the answer with its highest digit, "reversed" with its ones.
    """

    symbols = 11

    def __init__(self, *, order: Literal["standard", "reversed"] = "standard"):
        self.order = order

    def lengths(self, size: int) -> tuple[int, int]:
        return 2 * size + 1, size + 1

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        one, two = chance.numbers(size, 10), chance.numbers(size, 10)
        answer, carry = [], 0
        for digits in zip(reversed(one), reversed(two), strict=True):
            carry, digit = divmod(sum(digits) + carry, 10)
            answer.append(digit)
        answer.append(carry)
        return [*one, PLUS, *two], answer if self.order == "reversed" else answer[::-1]
