"""Generated tasks whose examples are a prompt and its answer: a file for each."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from zoo.data import Dataset
from zoo.data.algorithmic.questions import Questions
from zoo.registry import datasets

if TYPE_CHECKING:
    from zoo.data.source import DataSource
    from zoo.recipe import Recipe

__all__ = ["Algorithmic"]


class Algorithmic(Questions, Dataset):
    """A dataset of questions with an answer.

    A subclass gives `symbols`, `lengths` and `draw` (see `Questions`); its options are the arguments of its
    constructor.
    """

    gives = "answers"

    @property
    def shortest(self) -> int:
        return self.tokens(self.smallest)

    def open(self, recipe: Recipe, write_cache: bool = True) -> DataSource:
        from zoo.data.algorithmic.answers import Answers
        from zoo.data.source import GeneratedSource

        names = [option.name for option in datasets.describe(self.name).options]
        options = [f"{name} {getattr(recipe.data, name)}" for name in names]
        corpus = ", ".join([self.name, *options, f"format {self.format}"])
        draw = functools.partial(Answers, self, self.name)
        return GeneratedSource(recipe, self.gives, self.vocab_size, corpus, draw)
