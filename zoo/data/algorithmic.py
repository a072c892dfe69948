"""Generated tasks whose examples are a prompt and its answer."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

from zoo.data import Dataset
from zoo.data.draws import Chance, unit
from zoo.data.questions import Questions
from zoo.errors import InputError, Problem
from zoo.recipe.fields import AtLeastTwo, Count, Fraction, Positive
from zoo.registry import datasets, register

if TYPE_CHECKING:
    from zoo.data.source import DataSource
    from zoo.recipe import Recipe

Symbols = list[int]


class Algorithmic(Questions, Dataset):
    """A dataset of questions with an answer.

    A subclass gives `symbols`, `lengths` and `draw` (see `Questions`); its options are the arguments of its
    constructor.
    """

    gives = "answers"

    @property
    def shortest(self) -> int:
        return self.tokens(self.smallest)

    def open(self, recipe: Recipe) -> DataSource:
        from zoo.data.questions.answers import Answers
        from zoo.data.source import GeneratedSource

        names = [option.name for option in datasets.describe(self.name).options]
        options = [f"{name} {getattr(recipe.data, name)}" for name in names]
        corpus = ", ".join([self.name, *options, f"format {self.format}"])
        draw = functools.partial(Answers, self, self.name)
        return GeneratedSource(recipe, self.gives, self.vocab_size, corpus, draw)


class Strings(Algorithmic):
    """A string of symbols, drawn uniformly and independently, with an `answer` of the same length.

    Args:
        num_symbols: number of different symbols.
    """

    def __init__(self, *, num_symbols: AtLeastTwo = 10):
        self.symbols = num_symbols

    def lengths(self, size: int) -> tuple[int, int]:
        return size, size

    def draw(self, size: int, chance: Chance) -> tuple[Symbols, Symbols]:
        string = chance.numbers(size, self.symbols)
        return string, self.answer(string)

    def answer(self, string: Symbols) -> Symbols:
        raise NotImplementedError


@register.dataset("copy")
class Copy(Strings):
    """Repeat a random string.

    `c a b` is answered by `c a b`. A string longer than the alphabet repeats symbols, so a look-up of the
    last symbol's successor fails: the copy needs the position.

    Source: Kazemnejad et al. 2023 (arXiv:2305.19466), section 3, with words and an end of the answer;
    Deletang et al. 2023 (arXiv:2207.02098), "duplicate string", with the string twice. Here: symbols, once.
    """

    def answer(self, string: Symbols) -> Symbols:
        return string


@register.dataset("reverse")
class Reverse(Strings):
    """Repeat a random string backwards.

    `c a b` is answered by `b a c`. The distance to the next symbol grows with each symbol, so no constant
    distance solves it.

    Source: Kazemnejad et al. 2023 (arXiv:2305.19466), section 3, with words and an end of the answer;
    Deletang et al. 2023 (arXiv:2207.02098), "reverse string", with two symbols.
    """

    def answer(self, string: Symbols) -> Symbols:
        return string[::-1]


@register.dataset("sort")
class Sort(Strings):
    """Put random numbers into ascending order.

    `3 1 3 0` is answered by `0 1 3 3`. It needs counts and not the order of the question. Numbers are single
    tokens, drawn with repetition.

    Source: Deletang et al. 2023 (arXiv:2207.02098), "bucket sort", with 5 numbers; Kazemnejad et al. 2023
    (arXiv:2305.19466), section 3, also with numbers of several digits.
    """

    def answer(self, string: Symbols) -> Symbols:
        return sorted(string)


PLUS = 10


@register.dataset("addition")
class Addition(Algorithmic):
    """Add two numbers of equally many digits.

    `0 7 + 9 5` is answered by `1 0 2`; with reversed order by `2 0 1`. The size is the number of digits of
    each operand; the answer has one more. All three are padded with leading zeros. Digits are drawn uniformly
    and independently, so long carries are rare. In standard order the answer's first digit depends on all
    digits; in reversed order each depends on one digit of each operand and a carry.

    Source: Kazemnejad et al. 2023 (arXiv:2305.19466), section 3, without the padding. Reversed order: Lee et
    al. 2023 (arXiv:2307.03381), who leave the operands in standard order too. Index hints: Zhou et al. 2023
    (arXiv:2310.16028), section 4.1; Zhou et al. 2024 (arXiv:2402.09371), section 3, with 102 hints and all
    numbers reversed.

    Args:
        order: "standard" begins the answer with its highest digit, "reversed" with its ones; "all_reversed"
            begins all three numbers with their ones, as McLeish et al. 2024 (arXiv:2405.17399) do.
        index_hints: number of different hints; 0: none. A hint before each digit is the same for digits of
            the same significance, and the next one for the next higher digit; that of the ones is drawn. The
            hints of the answer are predicted too. After the last hint follows the first.
    """

    def __init__(
        self,
        *,
        order: Literal["standard", "reversed", "all_reversed"] = "standard",
        index_hints: Count = 0,
    ):
        self.order, self.hints = order, index_hints
        self.symbols = PLUS + 1 + index_hints

    def lengths(self, size: int) -> tuple[int, int]:
        tokens = 2 if self.hints else 1
        return 2 * tokens * size + 1, tokens * (size + 1)

    def draw(self, size: int, chance: Chance) -> tuple[Symbols, Symbols]:
        one, two = chance.numbers(size, 10), chance.numbers(size, 10)
        answer, carry = [], 0
        from_ones = (one, two) if self.order == "all_reversed" else (reversed(one), reversed(two))
        for digits in zip(*from_ones, strict=True):
            carry, digit = divmod(sum(digits) + carry, 10)
            answer.append(digit)
        answer.append(carry)
        if self.order == "standard":
            answer.reverse()
        if self.hints:
            start = chance.below(self.hints)
            one, two = (self.hinted(digits, start, self.order == "all_reversed") for digits in (one, two))
            answer = self.hinted(answer, start, self.order != "standard")
        return [*one, PLUS, *two], answer

    def hinted(self, digits: Symbols, start: int, from_ones: bool) -> Symbols:
        """A number with the hint of each digit before it; `start` is that of the ones."""
        places = range(len(digits)) if from_ones else reversed(range(len(digits)))
        hints = [PLUS + 1 + (start + place) % self.hints for place in places]
        return [symbol for pair in zip(hints, digits, strict=True) for symbol in pair]


@register.dataset("parity")
class Parity(Algorithmic):
    """Say whether the number of ones among random bits is odd.

    `1 0 1 1` is answered by `1`, for odd; an even number of ones by `0`. Each bit can change the answer, and
    order does not matter. A guess is right half of the time. It is among the hardest tasks for a transformer
    of constant depth: the effect of one bit shrinks with the length (Hahn 2020, arXiv:1906.06755).

    Source: Deletang et al. 2023 (arXiv:2207.02098), "parity check"; Kazemnejad et al. 2023
    (arXiv:2305.19466), section 3. Bits are uniform and independent, as in both.
    """

    symbols = 2

    def lengths(self, size: int) -> tuple[int, int]:
        return size, 1

    def draw(self, size: int, chance: Chance) -> tuple[Symbols, Symbols]:
        bits = chance.numbers(size, 2)
        return bits, [sum(bits) % 2]


@register.dataset("majority")
class Majority(Algorithmic):
    """Say which of two symbols is the more frequent.

    `1 0 1` is answered by `1`. Size n stands for 2n - 1 bits: an odd number has no ties. Bits are uniform and
    independent. The counts differ by about the root of the length, a difference of means that shrinks for
    attention that averages over all tokens. A guess is right half of the time; order does not matter.

    Source: the language MAJ of circuit theory, which averaging attention recognises (Merrill, Sabharwal and
    Smith 2022, arXiv:2106.16213). There a tie counts as no majority.
    """

    symbols = 2

    def lengths(self, size: int) -> tuple[int, int]:
        return 2 * size - 1, 1

    def draw(self, size: int, chance: Chance) -> tuple[Symbols, Symbols]:
        bits = chance.numbers(2 * size - 1, 2)
        return bits, [int(sum(bits) >= size)]


WRITE, IGNORE, READ = range(3)
FIRST_VALUE = 3


@register.dataset("flip_flop")
class FlipFlop(Algorithmic):
    """Give the last written symbol in a list of instructions to write, ignore and read.

    `write 1 ignore 0 read 1 ignore 0` is answered by `1`. The size is the number of instructions with the
    final read, which is the mark that asks for the answer. A symbol follows each other instruction: the
    written one, one to ignore, or after `read` the last written one. The first instruction writes; the others
    write or read with probability (1 - ignore_probability) / 2 each. Written and ignored symbols are uniform.

    Source: the language FFL(p) of Liu et al. 2023 (arXiv:2306.00946), section 3: trained with 0.8 to ignore,
    tested with 0.98 (few writes, far back) and 0.1 (many), with two symbols and 256 instructions. There every
    read is scored; here the final one, so that an example is right or wrong.

    Args:
        ignore_probability: probability of an instruction to ignore.
        num_symbols: number of symbols that can be written.
    """

    smallest = 2

    def __init__(self, *, ignore_probability: Fraction = 0.8, num_symbols: AtLeastTwo = 2):
        self.ignore, self.values = ignore_probability, num_symbols
        self.symbols = FIRST_VALUE + num_symbols

    def lengths(self, size: int) -> tuple[int, int]:
        return 2 * (size - 1), 1

    def draw(self, size: int, chance: Chance) -> tuple[Symbols, Symbols]:
        question, memory = [], 0
        values, uniform = chance.numbers(size - 1, self.values), unit(chance.words(size - 1)).tolist()
        for index, (drawn, value) in enumerate(zip(uniform, values, strict=True)):
            if index == 0 or drawn < (1 - self.ignore) / 2:
                instruction, memory = WRITE, value
            elif drawn < 1 - self.ignore:
                instruction, value = READ, memory
            else:
                instruction = IGNORE
            question += [instruction, FIRST_VALUE + value]
        return question, [FIRST_VALUE + memory]


BLANK = 0


@register.dataset("selective_copy")
class SelectiveCopy(Algorithmic):
    """Repeat the few symbols that are scattered among noise.

    `. c . . a b .` is answered by `c a b`. The size is the length of the question. A question of any length
    has `num_data` symbols at uniform positions, and one noise token elsewhere: the distances grow, the
    content to remember does not. Symbols are uniform and independent.

    Source: Gu and Dao 2023 (arXiv:2312.00752), section 4.1.1: 16 symbols at 4096 positions, from 16 tokens
    with the noise, all examples of one length.

    Args:
        num_data: symbols to copy.
        num_symbols: number of different symbols, without the noise.
    """

    def __init__(self, *, num_data: Positive = 16, num_symbols: AtLeastTwo = 15):
        self.smallest = self.num_data = num_data
        self.values, self.symbols = num_symbols, 1 + num_symbols

    def lengths(self, size: int) -> tuple[int, int]:
        return size, self.num_data

    def draw(self, size: int, chance: Chance) -> tuple[Symbols, Symbols]:
        data = [1 + value for value in chance.numbers(self.num_data, self.values)]
        question = [BLANK] * size
        for position, symbol in zip(sorted(chance.distinct(self.num_data, size)), data, strict=True):
            question[position] = symbol
        return question, data


@register.dataset("associative_recall")
class AssociativeRecall(Algorithmic):
    """Give the value of each key in a list of queries (multi-query associative recall).

    `. k v . . l w` with the queries `l k` is answered by `w v`. The question is `num_pairs` pairs of a key
    and its value, at random positions among blanks. Then each key is a query once, in random order: in the
    answer, keys and values alternate, keys are given and only values are scored. The size is the length of
    the question: the distances grow, the content to remember does not. Keys of an example differ, values may
    not.

    Source: MQAR of Arora et al. 2023 (arXiv:2312.04927). There the pairs come first, without blanks, the
    queries follow with gaps of a power law among random tokens, the number of pairs grows with the length,
    and there are 8192 tokens.

    Args:
        num_pairs: pairs of key and value.
        num_keys: number of different keys.
        num_values: number of different values.

    Raises:
        InputError: fewer keys than pairs.
    """

    asked = slice(1, None, 2)

    def __init__(self, *, num_pairs: Positive = 8, num_keys: AtLeastTwo = 32, num_values: AtLeastTwo = 32):
        if num_keys < num_pairs:
            message = f"{num_keys} keys are too few for {num_pairs} pairs with different keys"
            raise InputError(Problem(message, key="data.num_keys"))
        self.num_pairs, self.num_keys, self.num_values = num_pairs, num_keys, num_values
        self.smallest, self.symbols = 2 * num_pairs, 1 + num_keys + num_values

    def lengths(self, size: int) -> tuple[int, int]:
        return size, 2 * self.num_pairs

    def draw(self, size: int, chance: Chance) -> tuple[Symbols, Symbols]:
        keys = [1 + key for key in chance.distinct(self.num_pairs, self.num_keys)]
        values = [1 + self.num_keys + value for value in chance.numbers(self.num_pairs, self.num_values)]
        # A pair counts as one position, so that all ways to leave blanks between pairs are equally likely.
        positions = sorted(chance.distinct(self.num_pairs, size - self.num_pairs))
        question = [BLANK] * size
        for number, position in enumerate(positions):
            question[position + number : position + number + 2] = keys[number], values[number]
        order = chance.distinct(self.num_pairs, self.num_pairs)
        return question, [symbol for number in order for symbol in (keys[number], values[number])]


@register.dataset("dyck")
class Dyck(Algorithmic):
    """Give the depth of a prefix of well-nested brackets, then close them.

    `( [ ] [ (` is answered by `3 ) ] )`. The answer is the number of open brackets as one token, which needs
    a count, and then the closing brackets, which need the kinds too. The size is the length of the prefix.
    Each position opens or closes with probability 1/2 where both are possible; kinds are uniform. At most
    `max_depth` brackets are open, so that the depths, which are tokens, are the same at every length. Keep it
    small compared with the training sizes: short prefixes seldom reach large depths. A prefix of even length
    leaves an even number open, so an evaluated length has half of the depths.

    Source: the bounded language Dyck(k,m) of Hewitt et al. 2020 (arXiv:2010.07515) and Yao et al. 2021
    (arXiv:2105.11115), learned there as a language model. The completion as an answer is `dyck_languages` of
    BIG-bench (arXiv:2206.04615), without the depth. Dyck-2 has two kinds.

    Args:
        num_kinds: kinds of bracket.
        max_depth: most brackets that are open at a time.
    """

    def __init__(self, *, num_kinds: Positive = 2, max_depth: Positive = 8):
        self.num_kinds, self.max_depth = num_kinds, max_depth
        self.symbols = 2 * num_kinds + max_depth + 1

    def lengths(self, size: int) -> tuple[int, int]:
        return size, 1 + min(size, self.max_depth)

    def draw(self, size: int, chance: Chance) -> tuple[Symbols, Symbols]:
        kinds, prefix, open_ = self.num_kinds, [], []
        # One number decides both whether to open, where that is possible, and which kind.
        for drawn in chance.numbers(size, 2 * kinds):
            if not open_ or (drawn < kinds and len(open_) < self.max_depth):
                open_.append(drawn % kinds)
                prefix.append(drawn % kinds)
            else:
                prefix.append(kinds + open_.pop())
        return prefix, [2 * kinds + len(open_), *[kinds + kind for kind in reversed(open_)]]
