"""Variable tracking: all variables that have a value by way of each other."""

from __future__ import annotations

from typing import Any

from zoo.data.draws import Chance
from zoo.data.text.tokenizer import TextTokenizer
from zoo.data.text.tokens import TokenStream
from zoo.data.text_questions import NAMES, TextQuestions, TextQuestionsDataset, few_of, number_of
from zoo.errors import InputError, Problem
from zoo.field_types import Positive
from zoo.registry import register


class Chains(TextQuestions):
    """`VAR belco = 71432 text VAR arbi = belco text. Which variables are 71432? They are` is answered by
    ` belco, arbi`.

    Each chain begins with a number and goes on in `hops` lines, each of which gives a variable the value of
    the one before. Lines stand in a window of the text, each where it is drawn to, those of a chain in its
    order; chains are interleaved. The variables of one chain are asked for, in its order.

    Source: Hsieh et al. 2024 (arXiv:2404.06654), section 3. There the score counts the variables in any order
    and an instruction stands before the text.

    Args:
        hops: lines of a chain after its first.
        chains: how many; one of them is asked for.
    """

    DIGITS = 5

    def __init__(self, stream: TokenStream, tokenizer: TextTokenizer, hops: int, chains: int):
        super().__init__(stream, tokenizer)
        self.hops, self.chains = hops, chains

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        length = self.hops + 1
        names = few_of(NAMES, length * self.chains, chance)
        own = [names[start : start + length] for start in range(0, len(names), length)]
        values: dict[str, None] = {}
        while len(values) < self.chains:
            values[number_of(self.DIGITS, chance)] = None
        left = [
            [f"\nVAR {name} = {given}\n" for name, given in zip(chain, [value, *chain[:-1]], strict=True)]
            for chain, value in zip(own, values, strict=True)
        ]
        lines = []
        while any(left):
            # In proportion to what is left of each, so that all ways to interleave are equally likely.
            number = chance.below(sum(map(len, left)))
            chain = next(c for i, c in enumerate(left) if number < sum(map(len, left[: i + 1])))
            lines.append(chain.pop(0))
        asked, value = chance.one(list(zip(own, values, strict=True)))
        return lines, f"\nWhich variables are {value}? They are", " " + ", ".join(asked)


@register.dataset("variable_tracking")
class VariableTracking(TextQuestionsDataset):
    """Name all variables that have a value, which lines of a long text pass on from one to the next.

    Args:
        hops: how often the value is passed on.
        chains: chains of variables, each with its own value; one is asked for.
    """

    def __init__(
        self,
        *,
        hops: Positive = 4,
        chains: Positive = 1,
        **text: Any,
    ):
        super().__init__(**text)
        if (hops + 1) * chains > len(NAMES):
            message = f"{(hops + 1) * chains} variables: there are names for {len(NAMES)}"
            raise InputError(Problem(message, key="data.hops"))
        self.hops, self.chains = hops, chains

    def questions(self, stream: TokenStream, tokenizer: TextTokenizer) -> Chains:
        return Chains(stream, tokenizer, self.hops, self.chains)
