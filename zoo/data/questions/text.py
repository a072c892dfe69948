"""Questions that are asked within a text: how they are drawn, and the datasets that ask them."""

from __future__ import annotations

from functools import cached_property
from itertools import takewhile
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from zoo import registry
from zoo.data.draws import Chance, Draws
from zoo.data.questions import AHEAD, Questions
from zoo.data.questions.answers import Answers
from zoo.data.source import GENERATED_SIZE, DataSource
from zoo.data.text import Corpus
from zoo.data.text.cache import TokenCache
from zoo.data.text.datasets import TextSource, TokenizedText
from zoo.data.text.sample import WORDS
from zoo.data.text.tokenizer import WHITESPACE, TextTokenizer
from zoo.data.text.tokens import TokenStream
from zoo.errors import InputError, Problem
from zoo.recipe import Recipe
from zoo.recipe.fields import Positive, Section, Seed, Text
from zoo.recipe.sections import checked_by, dataset_section

TRIED = 64
"""Examples that are drawn to find how many tokens the shortest need."""


class TextQuestions(Questions):
    """The questions of a dataset at the end of a text, and their answers, in the tokens of any tokenizer.

    The size is all input tokens of an example: two models with one tokenizer read as many.

    Args:
        dataset: gives lines, question and answer.
        stream: the text that windows are taken from.
        tokenizer: the tokenizer of the stream.
    """

    def __init__(self, dataset: TextQuestionsDataset, stream: TokenStream, tokenizer: TextTokenizer):
        self.dataset, self.stream, self.tokenizer = dataset, stream, tokenizer
        # A document's end has no bytes; words part there too.
        self._opens = np.array([not raw or raw[0] in WHITESPACE for raw in tokenizer.token_bytes()])

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def tokens(self, size: int) -> int:
        return size

    def obstacle(self, size: int, split: str) -> str | None:
        """The reason why there are no examples of a size; None where there are."""
        return f"the {split} text has only {len(self.stream)} tokens" if size > len(self.stream) else None

    @cached_property
    def smallest(self) -> int:
        """Tokens that lines, question and answer need without any text, at the most of some examples."""
        draws = Draws("smallest", type(self.dataset).__name__)
        return max(self._needed(*self._draw(Chance(draws, row, AHEAD))) for row in range(TRIED))

    @property
    def held_out_from(self) -> int:
        # There are so many names and numbers that hardly two prompts are the same.
        return self.smallest

    def example(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        while True:
            lines, question, answer = self._draw(chance)
            room = size - self._needed(lines, question, answer)
            # One of the few examples that need more than `smallest` is drawn again.
            if room >= 0:
                return [*self.fill(room, lines, chance), *question], answer

    def fill(self, room: int, lines: list[list[int]], chance: Chance) -> list[int]:
        """The lines within `room` tokens of text: a window from a random place, cut between words."""
        text = self.window(room, chance)
        places = sorted(chance.below(room + 1) for _ in lines)
        filled, done = [], 0
        for place, line in zip(places, lines, strict=True):
            border = self.nearest_border(text, place)
            filled += [*text[done:border], *line]
            done = border
        return filled + text[done:]

    def window(self, size: int, chance: Chance) -> list[int]:
        start = chance.below(len(self.stream) - size + 1)
        return self.stream[start : start + size].tolist()

    def nearest_border(self, text: list[int], place: int) -> int:
        """The place between two words of a text, its beginning or its end that is nearest to a place."""
        borders = np.concatenate([[0], 1 + np.flatnonzero(self._opens[text[1:]]), [len(text)]])
        return int(borders[np.abs(borders - place).argmin()])

    def _draw(self, chance: Chance) -> tuple[list[list[int]], list[int], list[int]]:
        """Lines, question and answer in tokens."""
        lines, question, answer = self.dataset.draw_text(chance)
        *encoded, asked, both = map(self.tokenizer.encode_short, [*lines, question, question + answer])
        # Question and answer are tokenized as one text, as in the text that a model was trained on: the
        # answer begins with the first token that its own text changes.
        same = takewhile(lambda pair: pair[0] == pair[1], zip(asked, both, strict=False))
        common = min(len(list(same)), len(both) - 1)
        return encoded, both[:common], both[common:]

    @staticmethod
    def _needed(lines: list[list[int]], question: list[int], answer: list[int]) -> int:
        return sum(map(len, lines)) + len(question) + len(answer) - 1


NAMES = [one + two for one in WORDS.syllables[0] for two in WORDS.syllables[1]]
LONG_NAMES = [name + three for name in NAMES for three in WORDS.syllables[2]]
"""Invented names of two and of three syllables, which occur in no text."""


def few_of(names: list[str], count: int, chance: Chance) -> list[str]:
    """`count` different names."""
    found: dict[str, None] = {}
    while len(found) < count:
        found |= dict.fromkeys(names[number] for number in chance.numbers(count - len(found), len(names)))
    return [*found]


def number_of(digits: int, chance: Chance) -> str:
    """A number of so many digits, as text."""
    return "".join(map(str, [1 + chance.below(9), *chance.numbers(digits - 1, 10)]))


class TextQuestionsDataset(TokenizedText):
    """Questions that are asked in the text of a corpus; those of a split in the text of that split.

    A subclass gives `draw_text`; the options of its constructor are the options of the questions. Its class
    name is a key of the draws: another name gives other examples.

    Args:
        corpus: the corpus whose text surrounds the question.
        documents: corpus sample: number of documents.
        words: corpus sample: words per document.
        corpus_seed: corpus sample: its own seed, apart from that of the run.
    """

    gives, source = "answers", "generated, from data.corpus"
    text_options = (
        "corpus", "root", "cache", "vocab_size", "tokenizer", "documents", "words", "corpus_seed", "lengths",
    )  # fmt: skip
    questions: type[TextQuestions] = TextQuestions
    drawn_as: ClassVar[type[Answers]] = Answers
    format: ClassVar[int] = 1
    """Counted up whenever the same draws give another example."""
    later: ClassVar[tuple[str, ...]] = ()
    """Options that are recorded only where they are not the default: measurements without them stay valid."""
    presets: ClassVar[dict[str, dict[str, object]]] = {}
    """Options by the names of published tasks."""

    def __init__(
        self,
        *,
        corpus: Literal["wikitext-2", "wikitext-103", "text", "sample"] = "wikitext-2",
        documents: Annotated[Positive, Field(ge=3)] = 400,
        words: Annotated[Positive, Field(ge=50)] = 3000,
        corpus_seed: Seed = 0,
        **text: Any,
    ):
        super().__init__(**text)
        self._corpus = corpus
        self._options = {"documents": documents, "words": words, "corpus_seed": corpus_seed}

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        """The lines that are hidden in the text in this order, the question, and its answer."""
        raise NotImplementedError

    def own_options(self) -> dict[str, object]:
        """The options of the questions, without those of the text."""
        options = registry.datasets.describe(self.name).options
        own = {one.name: getattr(self, one.name) for one in options if one.name not in self.text_options}
        usual = {one.name: one.default for one in options if one.name in self.later}
        return {name: value for name, value in own.items() if (name, value) not in usual.items()}

    def corpus(self) -> Corpus:
        options = self._options if self._corpus == "sample" else {}
        text = registry.datasets.load(self._corpus)
        return text(root=self.root, cache=self.cache, vocab_size=self.vocab_size, **options).corpus()

    def open(self, recipe: Recipe) -> DataSource:
        return TextQuestionsSource(recipe, self, self.tokens(recipe))

    def examples(
        self, stream: TokenStream, tokenizer: TextTokenizer, split: str, length: int, size: int, **options
    ) -> Answers:
        """`size` examples in the text of a split; see `Answers`. Raises InputError where none fits."""
        questions = self.questions(self, stream, tokenizer)
        if why := questions.obstacle(questions.largest(length), split):
            raise InputError(Problem(why))
        return self.drawn_as(questions, self.name, length, size, split=split, **options)


class TextQuestionsSource(TextSource):
    """The questions of a dataset in the text of a corpus."""

    def __init__(self, recipe: Recipe, dataset: TextQuestionsDataset, tokens: TokenCache):
        super().__init__(recipe, dataset.gives, tokens)
        self._dataset = dataset
        options = [f"{name} {value}" for name, value in dataset.own_options().items()]
        questions = ", ".join([dataset.name, *options, f"format {dataset.format}"])
        self.fingerprint["corpus"] = f"{questions}, in {self.fingerprint['corpus']}"

    def examples(self, split: str, length: int, size: int, sizes: str = "largest") -> Answers:
        """As of `GeneratedSource`. Raises InputError also for a length beyond that of the text."""
        stream, seed = self.stream(split), self.seed(split)
        return self._dataset.examples(stream, self.tokenizer, split, length, size, seed=seed, sizes=sizes)

    def dataset(self, split: str) -> Answers:
        try:
            return self.examples(split, self.recipe.data.sequence_length, GENERATED_SIZE[split], "all")
        except InputError as error:
            # Known only with the tokenizer: the tokens of the question.
            raise InputError(Problem(error.problems[0].message, key="data.sequence_length")) from error


def questions_section(spec: Any) -> Section:
    """The options of questions that are asked in a text: of a name, a preset's too, or a mapping of a name
    and options."""
    known = [one for one in registry.datasets.names() if registry.datasets.describe(one).text_options]
    for name in known:
        preset = registry.datasets.load(name).presets.get(spec) if isinstance(spec, str) else None
        spec = spec if preset is None else {"name": name, **preset}
    return dataset_section(spec, known, TextQuestionsDataset.text_options)


AskedInText = Annotated[Text | dict[str, Any], checked_by(questions_section)]
"""Questions as an option has them: the name of a dataset or a preset, or a mapping of a name and options."""
