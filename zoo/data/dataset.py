"""What a recipe's `data.name` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from zoo.data.source import DataSource
    from zoo.recipe import Recipe


class Dataset:
    """A dataset, before it is opened. The typed keywords of the constructor are its keys under `data`.

    Derive from `Algorithmic` for generated questions with an answer and from `TextDataset` for a corpus;
    otherwise give `vocab_size` and `open`. Options that do not go together raise ValueError.
    """

    name: ClassVar[str]
    gives: ClassVar[str] = ""
    """What examples are, as tasks take them: text (without end), answers (a prompt and its answer), pointer
    (tokens of which one is to be pointed at), or a word of your own."""
    source: ClassVar[str] = "generated"
    """Where it comes from, as `zoo list datasets` shows it."""
    imports_torch: ClassVar[bool] = True
    """Where False, its file is quick to import, and the zoo's own is constructed while a recipe is read."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids, known before the data is opened."""
        raise NotImplementedError

    @property
    def shortest(self) -> int:
        """The fewest tokens that a sequence may have."""
        return 1

    def open(self, recipe: Recipe, write_cache: bool = True) -> DataSource:
        """The data itself.

        Args:
            write_cache: see `zoo.data.source.DataSource`.

        Raises:
            InputError: it cannot be had.
        """
        raise NotImplementedError
