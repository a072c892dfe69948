"""Generated tasks whose examples are a prompt and its answer: a file for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.data import Dataset
from zoo.data.algorithmic.questions import Questions

if TYPE_CHECKING:
    from zoo.data.source import DataSource
    from zoo.recipe import Recipe

__all__ = ["Algorithmic"]


class Algorithmic(Questions, Dataset):
    """A dataset of questions with an answer.

    A subclass gives `symbols`, `lengths` and `draw` (see `Questions`); its options are the arguments of its
    constructor.
    """

    gives, imports_torch = "answers", False

    @property
    def shortest(self) -> int:
        return self.tokens(self.smallest)

    def open(self, recipe: Recipe, write_cache: bool = True) -> DataSource:
        from zoo.data.algorithmic.answers import AlgorithmicSource

        return AlgorithmicSource(recipe, self.gives, self)
