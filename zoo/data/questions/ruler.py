"""Tasks of the benchmark RULER (Hsieh et al. 2024, arXiv:2404.06654, section 3) in any text.

There names are English words, an instruction comes before the text, and the score counts an answer's numbers
or words in any order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cache, cached_property
from itertools import chain, count
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import numpy as np
from pydantic import Field

from zoo.data.draws import Chance
from zoo.data.questions.text import LONG_NAMES, NAMES, TextQuestions, TextQuestionsDataset, few_of, number_of
from zoo.data.text.tokenizer import TextTokenizer
from zoo.errors import InputError, Problem
from zoo.recipe.fields import AboveZero, AtLeastTwo, Positive
from zoo.registry import register

DIGITS = 5  # of the number that a chain of variables begins with
ASKED = 3  # frequent words
NOISE = " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."


class Haystack(TextQuestions):
    """Whole lines in place of a text, as many as fit, between which the lines of the question are."""

    dataset: Needles | Chains

    def obstacle(self, size: int, split: str) -> None:
        return None

    def fill(self, room: int, lines: list[list[int]], chance: Chance) -> list[int]:
        told = self.tokenizer.decode(chain.from_iterable(lines))
        more: list[list[int]] = []
        while room >= 0:
            more.append(self.tokenizer.encode_short(self.dataset.other_line(told, chance)))
            room -= len(more[-1])
        return mixed(lines, more[:-1], chance)


def mixed(lines: list[list[int]], more: list[list[int]], chance: Chance) -> list[int]:
    """The tokens of lines, in their order, at uniform places among more of them, in random order."""
    places = set(chance.distinct(len(lines), len(lines) + len(more)))
    first, second = iter(lines), iter(chance.few(more, len(more)))
    order = (next(first if i in places else second) for i in range(len(lines) + len(more)))
    return [*chain.from_iterable(order)]


@register.dataset("needle")
class Needles(TextQuestionsDataset):
    """Find numbers that lines of a long text give to names: one of one, one of several, or several.

    `text. The number of belco is 71432. text. What is the number of belco? The number of belco is` is
    answered by ` 71432`. A needle is a line of its own between two words of a window of the text, or between
    two lines of another haystack, at a uniform place. Names are invented, and differ.

    Args:
        kind: `single`, `multi_key` (one of several names is asked for), `multi_value` (all numbers of one
            name, in the order of the text) or `multi_query` (the numbers of several names, in any order).
        needles: lines with a number, in all kinds but `single`.
        digits: digits of a number.
        haystack: around the needles: `text` of the corpus, `noise` (five short sentences over and over), or
            `needles` of other names.
        names: `words` or `uuids`.
        values: `numbers` or `uuids`.
    """

    later = ("haystack", "names", "values")
    presets: ClassVar = {
        "niah_single_1": {"haystack": "noise", "digits": 7},
        "niah_single_2": {"digits": 7},
        "niah_single_3": {"values": "uuids"},
        "niah_multikey_1": {"kind": "multi_key", "digits": 7},
        "niah_multikey_2": {"haystack": "needles", "digits": 7},
        "niah_multikey_3": {"haystack": "needles", "names": "uuids", "values": "uuids"},
        "niah_multivalue": {"kind": "multi_value", "digits": 7},
        "niah_multiquery": {"kind": "multi_query", "digits": 7},
    }

    def __init__(
        self,
        *,
        kind: Literal["single", "multi_key", "multi_value", "multi_query"] = "single",
        needles: AtLeastTwo = 4,
        digits: Positive = 5,
        haystack: Literal["text", "noise", "needles"] = "text",
        names: Literal["words", "uuids"] = "words",
        values: Literal["numbers", "uuids"] = "numbers",
        **text: Any,
    ):
        super().__init__(**text)
        if needles > len(NAMES):
            raise InputError(Problem(f"there are {len(NAMES)} names, and no more", key="data.needles"))
        self.kind, self.needles, self.digits = kind, needles, digits
        self.haystack, self.names, self.values = haystack, names, values
        self.questions = TextQuestions if haystack == "text" else Haystack

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        count, one, several = 1 if self.kind == "single" else self.needles, self.values[:-1], self.values
        names = self._names(1 if self.kind == "multi_value" else count, chance)
        values = [self._value(chance) for _ in range(count)]
        pairs = list(zip(names * (count // len(names)), values, strict=True))
        lines = [self._line(name, value) for name, value in pairs]
        if self.kind == "multi_value":
            question = f"\nWhat are the {several} of {names[0]}? The {several} of {names[0]} are"
            return lines, question, " " + ", ".join(values)
        if self.kind == "multi_query":
            asked = chance.few(pairs, count)
            those = ", ".join(name for name, _ in asked)
            question = f"\nWhat are the {several} of {those}? Their {several} are"
            return lines, question, " " + ", ".join(value for _, value in asked)
        # Lines are in the order of the text, so the answer must not always be in the first one.
        name, value = chance.one(pairs)
        return lines, f"\nWhat is the {one} of {name}? The {one} of {name} is", f" {value}"

    def other_line(self, told: str, chance: Chance) -> str:
        """A line of the haystack; none of a name that occurs in `told`."""
        if self.haystack == "noise":
            return NOISE
        while (name := self._names(1, chance)[0]) in told:
            pass
        return self._line(name, self._value(chance))

    def _line(self, name: str, value: str) -> str:
        return f"\nThe {self.values[:-1]} of {name} is {value}.\n"

    def _names(self, count: int, chance: Chance) -> list[str]:
        if self.names == "uuids":
            return [uuid_of(chance) for _ in range(count)]
        # A haystack of needles needs many names, and those in it look like the one that is asked for.
        return few_of(LONG_NAMES if self.haystack == "needles" else NAMES, count, chance)

    def _value(self, chance: Chance) -> str:
        return uuid_of(chance) if self.values == "uuids" else number_of(self.digits, chance)


def uuid_of(chance: Chance) -> str:
    """A random UUID of version 4, as text."""
    high, low = chance.words(2).tolist()
    return str(UUID(int=high << 64 | low, version=4))


@register.dataset("variable_tracking")
class Chains(TextQuestionsDataset):
    """Name all variables that have a value, which lines of a long text pass from one to the next.

    `VAR belco = 71432 text VAR arbi = belco text. Which variables are 71432? They are` is answered by
    ` belco, arbi`. Each chain begins with a number and continues in `hops` lines, each of which gives a
    variable the value of the one before. Lines are at uniform places, those of a chain in its order; chains
    are interleaved. The answer is the variables of one chain, in its order.

    Args:
        hops: how often the value is passed on.
        chains: chains of variables, each with its own value; one is asked for.
        haystack: around the lines: `text` of the corpus, or `noise` (five short sentences over and over).
    """

    later = ("haystack",)
    presets: ClassVar = {"vt": {"haystack": "noise"}}

    def __init__(
        self,
        *,
        hops: Positive = 4,
        chains: Positive = 1,
        haystack: Literal["text", "noise"] = "text",
        **text: Any,
    ):
        super().__init__(**text)
        if (hops + 1) * chains > len(NAMES):
            message = f"{(hops + 1) * chains} variables: there are names for {len(NAMES)}"
            raise InputError(Problem(message, key="data.hops"))
        self.hops, self.chains, self.haystack = hops, chains, haystack
        self.questions = TextQuestions if haystack == "text" else Haystack

    def other_line(self, told: str, chance: Chance) -> str:
        """A line of the haystack."""
        return NOISE

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        length = self.hops + 1
        names = few_of(NAMES, length * self.chains, chance)
        own = [names[start : start + length] for start in range(0, len(names), length)]
        values: dict[str, None] = {}
        while len(values) < self.chains:
            values[number_of(DIGITS, chance)] = None
        left = [
            [f"\nVAR {name} = {given}\n" for name, given in zip(chain, [value, *chain[:-1]], strict=True)]
            for chain, value in zip(own, values, strict=True)
        ]
        lines = []
        while any(left):
            # In proportion to the rest of each chain, so that all ways to interleave are equally likely.
            number = chance.below(sum(map(len, left)))
            chain = next(c for i, c in enumerate(left) if number < sum(map(len, left[: i + 1])))
            lines.append(chain.pop(0))
        asked, value = chance.one(list(zip(own, values, strict=True)))
        return lines, f"\nWhich variables are {value}? They are", " " + ", ".join(asked)


class WordList(TextQuestions):
    """A list of words instead of a text; a longer list has more of the other words."""

    dataset: CommonWords

    def obstacle(self, size: int, split: str) -> str | None:
        most = self.dataset.others * sum(map(len, self._words.values()))
        return f"there are words for {most} tokens, and no more" if size > most else None

    def fill(self, room: int, lines: list[list[int]], chance: Chance) -> list[int]:
        known, others = {tuple(line) for line in lines}, self.dataset.others
        # At least as many as fit: each word is two tokens or more.
        drawn = few_of(LONG_NAMES, min(len(LONG_NAMES), len(lines) + 1 + room // (2 * others)), chance)
        more: list[list[int]] = []
        for word in map(self._words.__getitem__, drawn):
            if tuple(word) in known:
                continue
            room -= others * len(word)
            if room < 0:
                break
            more += [word] * others
        # The common words keep their order, which is that of the answer.
        return mixed(lines, more, chance)

    @property
    def _words(self) -> dict[str, list[int]]:
        return encoded_names(self.tokenizer)


@cache
def encoded_names(tokenizer: TextTokenizer) -> dict[str, list[int]]:
    """The tokens of each long name after a space."""
    encoded = tokenizer.encode_batch([f" {word}" for word in LONG_NAMES])
    return {word: one.tolist() for word, one in zip(LONG_NAMES, encoded, strict=True)}


@register.dataset("common_words")
class CommonWords(TextQuestionsDataset):
    """Name the words of a long list that occur most often.

    They are in random order, and the answer has them in the order of their first occurrence. The number of
    occurrences does not grow with the list. Words are invented, of three syllables each. In RULER: ten words
    30 times, the others 3 times, English ones, numbered.

    Args:
        common: number of words that occur most often.
        times: occurrences of each of them.
        others: occurrences of each other word.
        corpus: the corpus whose tokenizer writes the words.
    """

    questions = WordList
    presets: ClassVar = {"cwe": {"common": 10, "times": 30, "others": 3}}

    def __init__(self, *, common: Positive = 3, times: Positive = 5, others: Positive = 2, **text: Any):
        super().__init__(**text)
        if others >= times:
            message = f"{others} occurrences of other words are not fewer than {times} of the common ones"
            raise InputError(Problem(message, key="data.others"))
        if common > 100:
            raise InputError(Problem("at most 100 words are asked for", key="data.common"))
        self.common, self.times, self.others = common, times, others

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        common = few_of(LONG_NAMES, self.common, chance)
        listed = [word for word in common for _ in range(self.times)]
        lines = [f" {word}" for word in chance.few(listed, len(listed))]
        question = "\nWhich words are the most common in this list? They are"
        first = dict.fromkeys(line.strip() for line in lines)
        return lines, question, " " + ", ".join(first)


class CodedText(WordList):
    """Words whose numbers of occurrences fall with their rank, in proportion to the length."""

    dataset: FrequentWords

    def obstacle(self, size: int, split: str) -> None:
        return None

    def fill(self, room: int, lines: list[list[int]], chance: Chance) -> list[int]:
        room += sum(map(len, lines))
        # Each of the first words occurs more often than the next, so their numbers tell the ranks.
        first = [list(word) for word, _ in Counter(map(tuple, lines)).most_common()]
        others = map(self._words.__getitem__, few_of(LONG_NAMES, min(len(LONG_NAMES) // 2, room), chance))
        ranked = [*first, *(word for word in others if word not in first)]
        widths, numbers = np.array([*map(len, ranked)]), range(self.dataset.least, room + 1)

        def tokens(number: int) -> int:
            return int(self.dataset.counts(number, len(ranked)) @ widths)

        number = numbers[bisect_right(numbers, room, key=tokens) - 1]
        counts = self.dataset.counts(number, len(ranked)).tolist()
        text = [word for word, count in zip(ranked, counts, strict=True) for _ in range(count)]
        return [*chain.from_iterable(chance.few(text, len(text)))]


@register.dataset("frequent_words")
class FrequentWords(TextQuestionsDataset):
    """Name the three most frequent words of a text of invented words, the most frequent first.

    A word's number of occurrences is that of the first rank times its rank to the power of -`alpha`, as in a
    zeta distribution, at any length. The first rank is `...`, which does not count. Each of the three occurs
    more often than the next. Words are invented, of three syllables each. In RULER: six random letters.

    Args:
        alpha: the exponent; with a smaller one more words are nearly as frequent.
        corpus: the corpus whose tokenizer writes the words.
    """

    questions = CodedText
    presets: ClassVar = {"fwe": {}}

    def __init__(self, *, alpha: Annotated[AboveZero, Field(le=4)] = 2.0, **text: Any):
        super().__init__(**text)
        self.alpha = alpha

    @cached_property
    def least(self) -> int:
        """The smallest number of the first rank with which all words that are asked for occur."""
        return next(number for number in count(1) if self.counts(number, ASKED + 1)[ASKED] > 0)

    def counts(self, number: int, ranks: int) -> np.ndarray:
        """Occurrences of each rank where the first has `number`."""
        found = (number * np.arange(1, ranks + 1) ** -self.alpha).astype(int)
        for rank in range(1, ASKED + 2):
            found[rank:] = found[rank:].clip(0, max(0, found[rank - 1] - 1))
        return found

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        names = few_of(LONG_NAMES, ASKED, chance)
        counts = self.counts(self.least, ASKED + 1).tolist()
        words = [[f" {word}"] * number for word, number in zip(["...", *names], counts, strict=True)]
        question = "\nWhich three words are the most frequent in this text, apart from the dots? They are"
        return [*chain.from_iterable(words)], question, " " + ", ".join(names)
