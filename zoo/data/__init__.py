"""Corpora, tokens and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from zoo.data.source import DataSource
    from zoo.recipe import Recipe
    from zoo.recipe.sections import DataConfig

__all__ = ["Dataset", "build_dataset", "open_data"]


class Dataset:
    """A dataset, before it is opened. The typed keywords of the constructor are its keys under `data`.

    Derive from `Algorithmic` for generated questions with an answer and from `TextDataset` for a corpus;
    otherwise give `vocab_size` and `open`. Options that do not go together raise ValueError.
    """

    name: ClassVar[str]
    gives: ClassVar[str] = ""
    """Kind of the examples, as in `Task.takes`: text (a stream), answers (a prompt and its answer), pointer
    (tokens, and the index of one of them), or a word of your own."""
    source: ClassVar[str] = "generated"
    """Origin of the data, for `zoo list datasets`."""
    text_options: ClassVar[tuple[str, ...]] = ()
    """For questions that can be asked in any text: the options that belong to the text. Protocol `prompts`
    asks these questions in the text and the tokens of the model that it scores."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids, known before the data is opened."""
        raise NotImplementedError

    @property
    def shortest(self) -> int:
        """The fewest tokens that a sequence may have."""
        return 1

    def validate(self, data: DataConfig) -> None:
        """Raises InputError for options that do not go with this section, before any data is opened."""

    def open(self, recipe: Recipe) -> DataSource:
        """The data itself. Raises InputError where it is missing or cannot be read."""
        raise NotImplementedError


def build_dataset(data: DataConfig) -> Dataset:
    """The dataset that a recipe's `data` names, not opened yet. Raises InputError for wrong options."""
    from zoo import registry
    from zoo.recipe.sections import construct

    return construct(registry.datasets, data.name, data)


def open_data(recipe: Recipe) -> DataSource:
    """Open the data that `recipe.data` names, and tokenize it first where that was not done before.

    See `Dataset.open`.
    """
    return build_dataset(recipe.data).open(recipe)
