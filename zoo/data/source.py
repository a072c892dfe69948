"""From a recipe's `data` section to loaders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from zoo.data.loader import EpochSampler, Loader, ResumableLoader, strided_batches
from zoo.errors import InputError, Problem
from zoo.recipe import Recipe

GENERATED_SIZE = {"train": 1 << 20, "valid": 1024, "test": 4096}

VALID_TOKENS = 1 << 21
"""Most tokens of a validation by default. A constant: a resume may change the interval, and the scores of a
run stay comparable."""


class DataSource:
    """The data of a run.

    A subclass gives `dataset` and `fingerprint`, which identifies the data and the tokenizer. For text it
    also gives `tokenizer` and `units`; they are None otherwise.

    Args:
        kind: kind of its examples, see `Dataset.gives`.
        vocab_size: number of token ids, for the model's embedding.
    """

    fingerprint: dict[str, str]
    lengths: Sequence[int] = ()
    """Lengths of windows in training, see `ResumableLoader`."""
    tokenizer = None
    units = None
    about: str | None = None
    """The files and documents of a text and how they are divided, for the user."""
    label: str | None = None
    """Name of the corpus of an evaluation, where it is not that of the run."""
    separate: bool = False
    """Whether a token sees its own document alone."""

    def __init__(self, recipe: Recipe, kind: str, vocab_size: int):
        self.recipe, self.kind, self.vocab_size = recipe, kind, vocab_size
        self.accumulate: int = recipe.trainer.accumulate_grad_batches

    def dataset(self, split: str) -> Dataset:
        """Training-length examples of a split (train, valid, test), in the form that the task needs."""
        raise NotImplementedError

    def seed(self, split: str) -> int:
        """The seed of a split's draws: runs that differ in the seed alone are judged on the same examples."""
        return self.recipe.seed if split == "train" else 0

    def train_loader(self, rank: int = 0, world_size: int = 1) -> ResumableLoader:
        """One rank's micro-batches, shuffled anew in every epoch. Raises InputError for a batch that cannot
        be shared equally, or that is larger than the training data."""
        data, dataset = self.recipe.data, self.dataset("train")
        ranks = {"accumulate": self.accumulate, "rank": rank, "world_size": world_size}
        sampler = EpochSampler(len(dataset), data.batch_size, self.recipe.seed, **ranks)
        return ResumableLoader(dataset, sampler, data.workers, self.lengths)

    def valid_loader(self, rank: int = 0, world_size: int = 1) -> Loader:
        """One rank's part of the validation split: in order, unpadded, in micro-batches as in training.

        The same examples are left on any number of ranks. Raises InputError where a rank would have none.
        """
        data, dataset, size = self.recipe.data, self.dataset("valid"), self.valid_size()
        if size < world_size:
            message = (
                f"the validation data holds too few sequences ({size}) for {world_size} devices; take more "
                "text, a shorter sequence_length, fewer devices, or trainer.limit_val_batches=0"
            )
            raise InputError(Problem(message, key="data.sequence_length"))
        share = max(1, data.batch_size // (world_size * self.accumulate))
        return Loader(dataset, strided_batches(size, share, rank, world_size), data.workers)

    def valid_size(self) -> int:
        """Sequences of a validation, by `trainer.limit_val_batches` and `VALID_TOKENS`, in whole batches."""
        recipe, size, limit = self.recipe, len(self.dataset("valid")), self.recipe.trainer.limit_val_batches
        if isinstance(limit, float):
            return min(size, max(1, round(limit * size)))
        batches = max(1, VALID_TOKENS // recipe.tokens_per_step) if limit is None else limit
        return min(size, batches * recipe.data.batch_size)

    def validate(self, world_size: int) -> None:
        """Raises InputError for data that is too small for a training with so many processes, or is to be
        scored as a whole."""
        if self.recipe.evaluate.split == "all":
            message = "all is for a text that the model is not trained on; choose valid or test"
            raise InputError(Problem(message, key="evaluate.split"))
        self.train_loader(0, world_size)
        if self.recipe.trainer.limit_val_batches != 0:
            self.valid_loader(0, world_size)

    def save_tokenizer(self, folder: Path) -> None:
        """Write `tokenizer.json` into a folder; nothing where there is no text."""


class GeneratedSource(DataSource):
    """Examples that are drawn on demand.

    Args:
        corpus: identifies the examples: another text wherever these differ.
        draw: returns a dataset; keywords are split, length, size, seed, and `sizes` as of `examples`.
    """

    def __init__(self, recipe: Recipe, kind: str, vocab_size: int, corpus: str, draw: Callable[..., Any]):
        super().__init__(recipe, kind, vocab_size)
        self.fingerprint = {"corpus": corpus, "tokenizer": ""}
        self._draw = draw

    def examples(self, split: str, length: int, size: int, sizes: str = "largest") -> Any:
        """`size` examples of a length: of the largest question that fits it, or of "all" `sizes` that do.

        Raises InputError for a length at which none fits.
        """
        return self._draw(split=split, length=length, size=size, seed=self.seed(split), sizes=sizes)

    def dataset(self, split: str) -> Any:
        return self.examples(split, self.recipe.data.sequence_length, GENERATED_SIZE[split], "all")
