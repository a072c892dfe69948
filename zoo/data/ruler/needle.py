"""Needles in a haystack: the numbers that lines of a long text give to names."""

from __future__ import annotations

from typing import Any, Literal

from zoo.data.draws import Chance
from zoo.data.text.tokenizer import TextTokenizer
from zoo.data.text.tokens import TokenStream
from zoo.data.text_questions import NAMES, TextQuestions, TextQuestionsDataset, few_of, number_of
from zoo.errors import InputError, Problem
from zoo.field_types import Positive, Several
from zoo.registry import register


class Needles(TextQuestions):
    """`text. The number of belco is 71432. text. What is the number of belco? The number of belco is` is
    answered by ` 71432`.

    A needle is a line of its own between two words of a window of the text; where, is drawn uniformly for
    each. Names are invented, and differ. The kinds, as RULER has them:

    - single: one needle.
    - multi_key: several needles, each for another name; one of them is asked for.
    - multi_value: several needles for one name; all its numbers are asked for, in the order of the text.
    - multi_query: several needles, each for another name; all are asked for, in any order.

    Source: Hsieh et al. 2024 (arXiv:2404.06654), section 3. There names are English words, the score counts
    an answer's numbers in any order, and an instruction stands before the text.

    Args:
        kind: which of them.
        needles: how many, of every kind but `single`.
        digits: digits of a number.
    """

    def __init__(self, stream: TokenStream, tokenizer: TextTokenizer, kind: str, needles: int, digits: int):
        super().__init__(stream, tokenizer)
        self.kind, self.count, self.digits = kind, 1 if kind == "single" else needles, digits

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        names = few_of(NAMES, 1 if self.kind == "multi_value" else self.count, chance)
        numbers = [number_of(self.digits, chance) for _ in range(self.count)]
        pairs = list(zip(names * (self.count // len(names)), numbers, strict=True))
        lines = [f"\nThe number of {name} is {number}.\n" for name, number in pairs]
        if self.kind == "multi_value":
            question = f"\nWhat are the numbers of {names[0]}? The numbers of {names[0]} are"
            return lines, question, " " + ", ".join(numbers)
        if self.kind == "multi_query":
            asked = chance.few(pairs, self.count)
            several = ", ".join(name for name, _ in asked)
            question = f"\nWhat are the numbers of {several}? Their numbers are"
            return lines, question, " " + ", ".join(number for _, number in asked)
        # Lines are in the order of the text, and so the one that is asked for must not always be the first.
        name, number = chance.one(pairs)
        return lines, f"\nWhat is the number of {name}? The number of {name} is", f" {number}"


@register.dataset("needle")
class NeedleDataset(TextQuestionsDataset):
    """Find numbers that lines of a long text give to names: one of one, one of several, or several.

    Args:
        kind: `single`, `multi_key` (one of several names is asked for), `multi_value` (all numbers of one
            name) or `multi_query` (the numbers of several names).
        needles: lines with a number; a single one has no other.
        digits: digits of a number.
    """

    def __init__(
        self,
        *,
        kind: Literal["single", "multi_key", "multi_value", "multi_query"] = "single",
        needles: Several = 4,
        digits: Positive = 5,
        **text: Any,
    ):
        super().__init__(**text)
        if needles > len(NAMES):
            raise InputError(Problem(f"there are {len(NAMES)} names, and no more", key="data.needles"))
        self.kind, self.needles, self.digits = kind, needles, digits

    def questions(self, stream: TokenStream, tokenizer: TextTokenizer) -> Needles:
        return Needles(stream, tokenizer, self.kind, self.needles, self.digits)
