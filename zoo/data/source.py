"""From a recipe's `data` section to loaders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch.utils.data import Dataset

from zoo.data.algorithmic.algorithmic import Algorithmic
from zoo.data.algorithmic.answers import Answers
from zoo.data.blocks import Blocks
from zoo.data.dataset import Dataset as NamedDataset
from zoo.data.loader import EpochSampler, Loader, ResumableLoader, StridedSampler
from zoo.data.max_index import MaxIndex, MaxIndexDataset
from zoo.data.text.datasets import TextDataset, default_cache
from zoo.errors import InputError, Problem
from zoo.recipe import Recipe
from zoo.registry import datasets, tasks

if TYPE_CHECKING:
    from zoo.data.text.cache import TokenCache

GENERATED_SIZE = {"train": 1 << 20, "valid": 1024, "test": 4096}


class DataSource:
    """The data of a run.

    `kind` is what its examples are (`Dataset.gives`); `vocab_size` what the model's embedding needs; `fingerprint`
    what the data and the tokenizer are known by. For text also `tokenizer`, `mask_token` and `units`; None
    otherwise.

    Args:
        write_cache: False for a recipe out of a checkpoint: tokens are read from the cache that it names, and
            if they are not there made in the default one.
    """

    kind: str
    vocab_size: int
    fingerprint: dict[str, str]
    tokenizer = None
    mask_token: int | None = None
    units = None

    def __init__(self, recipe: Recipe, dataset: NamedDataset):
        self.recipe = recipe
        self.kind = dataset.gives
        self.vocab_size = dataset.vocab_size
        self.accumulate: int = recipe.trainer.accumulate_grad_batches

    def dataset(self, split: str) -> Dataset:
        """Training-length examples of a split (train, valid, test), as the task wants them."""
        raise NotImplementedError

    def train_loader(self, rank: int = 0, world_size: int = 1) -> ResumableLoader:
        """One rank's micro-batches, shuffled anew in every epoch. Raises InputError for a batch that cannot
        be shared equally, or that is larger than the training data."""
        data, dataset = self.recipe.data, self.dataset("train")
        sampler = EpochSampler(
            len(dataset),
            data.batch_size,
            self.recipe.seed,
            accumulate=self.accumulate,
            rank=rank,
            world_size=world_size,
        )
        return ResumableLoader(dataset, sampler, data.workers)

    def valid_loader(self, rank: int = 0, world_size: int = 1) -> Loader:
        """One rank's part of the validation split: in order, unpadded, in micro-batches as in training.

        `trainer.limit_val_batches` is taken off here, in whole batches: the same examples are left on any
        number of ranks. Raises InputError where a rank would have none.
        """
        data = self.recipe.data
        share = max(1, data.batch_size // (world_size * self.accumulate))
        dataset = self.dataset("valid")
        size = _limited(len(dataset), self.recipe.trainer.limit_val_batches, data.batch_size)
        if size < world_size:
            raise InputError(
                Problem(
                    f"the validation data holds {size} sequence{'' if size == 1 else 's'}, too few for "
                    f"{world_size} devices; take more text, a shorter sequence_length, fewer devices, or "
                    "trainer.limit_val_batches=0",
                    key="data.sequence_length",
                )
            )
        sampler = StridedSampler(size, share, rank=rank, world_size=world_size)
        return Loader(dataset, sampler, data.workers)

    def save_tokenizer(self, folder: Path) -> None:
        """Write `tokenizer.json` into a folder; nothing where there is no text."""


def _limited(size: int, limit: int | float | None, batch_size: int) -> int:
    """How many of so many examples are validated: a number of batches, a fraction, or all."""
    if limit is None:
        return size
    return min(size, limit * batch_size if isinstance(limit, int) else max(1, round(limit * size)))


class TextSource(DataSource):
    """Tokens of a corpus. `stream(split)` is the whole split."""

    def __init__(self, recipe: Recipe, dataset: TextDataset, write_cache: bool = True):
        super().__init__(recipe, dataset)
        self.cache = _tokens(dataset, write_cache)
        self.tokenizer = self.cache.tokenizer
        self.vocab_size = self.tokenizer.vocab_size
        self.mask_token = self.tokenizer.mask_token
        self.units = self.cache.units
        self.fingerprint = {"corpus": self.cache.corpus, "tokenizer": self.tokenizer.fingerprint}

    def stream(self, split: str):
        """The `TokenStream` of a split."""
        return self.cache.streams[split]

    def dataset(self, split: str, length: int | None = None) -> Dataset:
        """Blocks of `length` tokens (the training length if None), masked where the task asks for it."""
        recipe = self.recipe
        length = length or recipe.data.sequence_length
        if not tasks.describe(recipe.task.name).hides_tokens:
            return Blocks(self.stream(split), length)
        from zoo.data.masking import MaskedBlocks

        return MaskedBlocks(
            self.stream(split),
            length,
            mask_fraction=recipe.task.mask_fraction,
            mask_token=self.mask_token,
            end_token=self.tokenizer.end_token,
            vocab_size=self.vocab_size,
            # Runs that differ in the seed alone are judged on the same draw.
            seed=recipe.seed if split == "train" else 0,
            epoch=0 if split == "train" else None,
        )

    def save_tokenizer(self, folder: Path) -> None:
        self.tokenizer.save(Path(folder) / "tokenizer.json")


def _tokens(data: TextDataset, write_cache: bool) -> TokenCache:
    from zoo.data.text.cache import open_cache, open_unwritten

    corpus, own = data.corpus(), default_cache()
    named = Path(data.cache) if data.cache else own
    if write_cache or named == own:
        return open_cache(corpus, data.vocab_size, named)
    return open_unwritten(corpus, data.vocab_size, named, own) or open_cache(corpus, data.vocab_size, own)


class MaxIndexSource(DataSource):
    """Max-index sequences, drawn as they are asked for."""

    def __init__(self, recipe: Recipe, dataset: MaxIndexDataset):
        super().__init__(recipe, dataset)
        values = dataset.num_values
        self.fingerprint = {"corpus": f"max_index of {values} values, format 2", "tokenizer": ""}

    def examples(self, split: str, length: int, size: int) -> MaxIndex:
        """`size` sequences of any length. Only those of "train" depend on the seed: runs that differ in it
        alone are judged on the same ones."""
        seed = self.recipe.seed if split == "train" else 0
        return MaxIndex(length, self.recipe.data.num_values, seed, split, size)

    def dataset(self, split: str) -> MaxIndex:
        return self.examples(split, self.recipe.data.sequence_length, GENERATED_SIZE[split])


class AlgorithmicSource(DataSource):
    """Prompts with answers, drawn as they are asked for."""

    def __init__(self, recipe: Recipe, dataset: Algorithmic):
        super().__init__(recipe, dataset)
        self.task = dataset
        options = [option.name for option in datasets.describe(recipe.data.name).options]
        told = [f"{option} {getattr(recipe.data, option)}" for option in options]
        corpus = ", ".join([recipe.data.name, *told, f"format {dataset.format}"])
        self.fingerprint = {"corpus": corpus, "tokenizer": ""}

    def examples(self, split: str, length: int, size: int, sizes: str = "largest") -> Answers:
        """`size` examples of the largest size that fits `length` tokens, or of "all" `sizes` that do. Only
        those of "train" depend on the seed. Raises InputError for a length at which none fits."""
        seed = self.recipe.seed if split == "train" else 0
        name = self.recipe.data.name
        return Answers(self.task, name, length, size, seed=seed, split=split, sizes=sizes)

    def dataset(self, split: str) -> Answers:
        return self.examples(split, self.recipe.data.sequence_length, GENERATED_SIZE[split], "all")
