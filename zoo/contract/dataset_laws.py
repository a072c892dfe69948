"""The laws of datasets, tried on a small recipe: `zoo check` of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from zoo import registry
from zoo.data import build_dataset, open_data
from zoo.data.source import DataSource
from zoo.errors import InputError
from zoo.recipe import Recipe, resolve
from zoo.recipe.sections import usual_task

LENGTH, BATCH, SOME = 32, 4, 256
Batch = dict[str, Tensor]


def recipe_with(data: dict[str, Any], seed: int = 0, **sections: Any) -> Recipe:
    """A recipe of a tiny model on a dataset. Raises InputError where no task takes it."""
    kinds = [kind for kind in ("decoder", "encoder") if usual_task(data["name"], kind)]
    if not kinds:
        gives = registry.datasets.describe(data["name"]).gives
        raise InputError(f"no task accepts what dataset {data['name']!r} gives, {gives!r}; register one too")
    model = {"kind": kinds[0], "encoding": "none", "d_model": 16, "num_layers": 1, "num_heads": 2}
    common = {"name": "check", "seed": seed, "model": model, "optimizer": {"lr": 1e-3}}
    return resolve({**common, "data": data, "trainer": {"max_steps": 1, "accelerator": "cpu"}, **sections})


def dataset_laws(name: str, options: dict[str, Any], cache: Path) -> Iterator[tuple[str, str | None]]:
    """Each law with what breaks it; None where it holds.

    Args:
        cache: a folder for tokens, for a dataset that has this option.

    Raises:
        InputError: the dataset cannot be opened with these options.
    """
    data = {"name": name, "sequence_length": LENGTH, "batch_size": BATCH, **options}
    if "cache" in [option.name for option in registry.datasets.describe(name).options]:
        data.setdefault("cache", str(cache))
    shortest = build_dataset(recipe_with(data).data).shortest
    data["sequence_length"] = max(LENGTH, 2 * shortest)
    source, again = (open_data(recipe_with(data)) for _ in range(2))
    other = open_data(recipe_with(data, seed=1))
    laws: dict[str, Callable[[], str | None]] = {
        "tokens are in the vocabulary": lambda: _in_vocabulary(source),
        "the same seed gives the same tokens": lambda: _same(source, again, ("train", "valid")),
        "validation does not depend on the seed": lambda: _same(source, other, ("valid",)),
        "an example depends on its index alone": lambda: _by_index(source),
        "training resumes at the next batch": lambda: _resumes(source, again),
        "devices share a batch, no example twice": lambda: _shared(source),
        "validation examples are not in the training set": lambda: _held_out(source),
    }
    for law, fault in laws.items():
        try:
            yield law, fault()
        except Exception as error:  # a plugin's code may do anything
            yield law, f"{type(error).__name__}: {error}"


def _rows(dataset: Dataset, count: int) -> Batch:
    return _batch(dataset, range(min(count, len(dataset))))


def _batch(dataset: Dataset, indices: range | list[int]) -> Batch:
    if hasattr(dataset, "batch"):
        return dataset.batch(indices)
    return default_collate([dataset[index] for index in indices])


def _differ(one: Batch, other: Batch) -> str | None:
    if one.keys() != other.keys():
        return f"{', '.join(one)} and {', '.join(other)}"
    wrong = [key for key in one if not torch.equal(one[key], other[key])]
    return f"{', '.join(wrong)} differ" if wrong else None


def _in_vocabulary(source: DataSource) -> str | None:
    tokens = _rows(source.dataset("train"), SOME)["tokens"]
    if tokens.shape[1] != source.recipe.data.sequence_length:
        return (
            f"rows of {tokens.shape[1]} tokens where sequence_length is {source.recipe.data.sequence_length}"
        )
    least, most = int(tokens.min()), int(tokens.max())
    inside = least >= 0 and most < source.vocab_size
    return None if inside else f"tokens from {least} to {most}, and vocab_size is {source.vocab_size}"


def _same(one: DataSource, other: DataSource, splits: tuple[str, ...]) -> str | None:
    for split in splits:
        fault = _differ(_rows(one.dataset(split), SOME), _rows(other.dataset(split), SOME))
        if fault:
            return f"{split}: {fault}"
    return None


def _by_index(source: DataSource) -> str | None:
    dataset = source.dataset("train")
    count = min(SOME, len(dataset))
    together = _batch(dataset, range(count))
    for index in (count - 1, 0, count // 2):
        alone = _batch(dataset, [index])
        fault = _differ({key: value[index : index + 1] for key, value in together.items()}, alone)
        if fault:
            return f"example {index}: {fault} alone and among others"
    return None


def _resumes(source: DataSource, again: DataSource) -> str | None:
    loader, resumed = source.train_loader(), again.train_loader()
    batches = iter(loader)
    for _ in range(min(3, len(loader))):
        next(batches)
    resumed.load_state_dict(loader.state_dict())
    return _differ(next(iter(loader)), next(iter(resumed)))


def _shared(source: DataSource) -> str | None:
    batch = next(iter(source.train_loader()))
    parts = [next(iter(source.train_loader(rank, 2))) for rank in range(2)]
    return _differ(batch, {key: torch.cat([part[key] for part in parts]) for key in batch})


def _held_out(source: DataSource) -> str | None:
    valid = source.dataset("valid")
    share = getattr(valid, "seen_in_training", lambda length: 0.0)(source.recipe.data.sequence_length)
    if share:
        return None  # it declares that its examples are too few to hold any out
    trained = {tuple(row) for row in _rows(source.dataset("train"), 16 * SOME)["tokens"].tolist()}
    seen = sum(tuple(row) in trained for row in _rows(valid, SOME)["tokens"].tolist())
    return f"{seen} validation examples are trained on" if seen else None
