"""What all generated tasks with an answer share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.data.algorithmic.questions import Questions
from zoo.data.dataset import Dataset

if TYPE_CHECKING:
    from zoo.data.source import DataSource
    from zoo.recipe import Recipe


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
        from zoo.data.algorithmic.source import AlgorithmicSource

        return AlgorithmicSource(recipe, self.gives, self)
