"""Multi-query associative recall: the value of each key that is asked for."""

from __future__ import annotations

from zoo.data.algorithmic import Algorithmic
from zoo.data.draws import Chance
from zoo.errors import InputError, Problem
from zoo.field_types import Positive, Several
from zoo.registry import register

BLANK = 0


@register.dataset("associative_recall")
class AssociativeRecall(Algorithmic):
    """Say the value of each key that is asked for (multi-query associative recall).

    `. k v . . l w` with the queries `l k` is answered by `w v`.

    The question is `num_pairs` pairs of a key and its value, at random positions among blanks. Then each key
    is asked for once, in random order: key and value take turns in what follows, where the keys are given and
    the values alone are scored. The size is the length of the question, blanks included: at every length as
    much is to be remembered, ever farther apart. Keys of an example differ, values may not.

    Source: MQAR of Arora et al. 2023 (arXiv:2312.04927). There the pairs come first, without blanks, and
    the queries are spread after them with gaps that follow a power law, among random tokens; the number of
    pairs grows with the length, and there are 8192 tokens.

    Args:
        num_pairs: pairs of key and value.
        num_keys: keys that there are.
        num_values: values that there are.

    Raises:
        InputError: fewer keys than pairs.
    """

    asked = slice(1, None, 2)

    def __init__(self, *, num_pairs: Positive = 8, num_keys: Several = 32, num_values: Several = 32):
        if num_keys < num_pairs:
            message = f"{num_keys} keys are too few for {num_pairs} pairs, no two of which have the same"
            raise InputError(Problem(message, key="data.num_keys"))
        self.num_pairs, self.num_keys, self.num_values = num_pairs, num_keys, num_values
        self.smallest = 2 * num_pairs
        self.symbols = 1 + num_keys + num_values

    def lengths(self, size: int) -> tuple[int, int]:
        return size, 2 * self.num_pairs

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        keys = [1 + key for key in chance.distinct(self.num_pairs, self.num_keys)]
        values = [1 + self.num_keys + value for value in chance.numbers(self.num_pairs, self.num_values)]
        # A pair counts as one position, so that all ways to leave blanks between pairs are equally likely.
        positions = sorted(chance.distinct(self.num_pairs, size - self.num_pairs))
        question = [BLANK] * size
        for number, position in enumerate(positions):
            question[position + number : position + number + 2] = keys[number], values[number]
        answer = []
        for number in chance.distinct(self.num_pairs, self.num_pairs):
            answer += [keys[number], values[number]]
        return question, answer
