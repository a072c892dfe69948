"""The laws of datasets, tried on a small recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from zoo import registry
from zoo.contract.hook_outputs import line_of_function
from zoo.contract.law import Law, Outcome, Trial, failed, law, only, passed
from zoo.data import build_dataset, open_data
from zoo.data.blocks import NOT_SCORED
from zoo.data.draws import Chance, Draws
from zoo.data.questions import AHEAD, Questions
from zoo.errors import InputError
from zoo.recipe import Recipe, resolve
from zoo.recipe.sections import usual_task
from zoo.registry import Description

LENGTH, BATCH, SOME = 33, 4, 256
LAWS: list[Law] = []
data_law: Callable[..., Callable[[Trial], Trial]] = partial(law, needs=(), laws=LAWS)


def recipe_with(data: dict[str, Any], seed: int = 0, **sections: Any) -> Recipe:
    """A recipe of a tiny model on a dataset. Raises InputError where no task takes it."""
    kinds = [kind for kind in ("decoder", "encoder") if usual_task(data["name"], kind)]
    if not kinds:
        gives = registry.datasets.describe(data["name"]).gives
        raise InputError(f"no task accepts what dataset {data['name']!r} gives, {gives!r}; register one too")
    model = {"kind": kinds[0], "encoding": "none", "d_model": 16, "num_layers": 1, "num_heads": 2}
    common = {"name": "check", "seed": seed, "model": model, "optimizer": {"lr": 1e-3}}
    return resolve({**common, "data": data, "trainer": {"max_steps": 1, "accelerator": "cpu"}, **sections})


class DatasetSubject:
    """A dataset, opened twice with one seed and once with another.

    Raises InputError where it cannot be opened with these options. `cache` is a folder for tokens.
    """

    def __init__(self, description: Description, options: dict[str, Any], cache: Path):
        self.name, self.plugins = description.name, [description]
        data = {"name": description.name, "sequence_length": LENGTH, "batch_size": BATCH, **options}
        if "cache" in [option.name for option in description.options]:
            data.setdefault("cache", str(cache))
        self.dataset = build_dataset(recipe_with(data).data)
        data["sequence_length"] = max(data["sequence_length"], 2 * self.dataset.shortest)
        self.source, self.again, self.other = (open_data(recipe_with(data, seed)) for seed in (0, 0, 1))

    def __str__(self) -> str:
        return self.name


Batch = dict[str, Tensor]


def _batch(dataset: Dataset, indices: Sequence[int]) -> Batch:
    if hasattr(dataset, "batch"):
        return dataset.batch(indices)
    return default_collate([dataset[index] for index in indices])


def _first(dataset: Dataset, times: int = 1) -> Batch:
    return _batch(dataset, range(min(times * SOME, len(dataset))))


def _same(one: Batch, other: Batch, what: str) -> Outcome:
    if one.keys() != other.keys():
        return failed(f"{what}: {', '.join(one)} and {', '.join(other)}")
    wrong = [key for key in one if not torch.equal(one[key], other[key])]
    return failed(f"{what}: {', '.join(wrong)} differ") if wrong else passed()


@data_law(
    "tokens are in the vocabulary",
    "Rows have `sequence_length` tokens. They and the targets are from 0 to `vocab_size` - 1; an answer that "
    "is a position is from 0 to `sequence_length` - 1.",
)
def in_vocabulary(subject: DatasetSubject) -> Iterator[Outcome]:
    batch, vocab_size = _first(subject.source.dataset("train")), subject.source.vocab_size
    length = subject.source.recipe.data.sequence_length
    if batch["tokens"].shape[1] != length:
        yield failed(f"rows of {batch['tokens'].shape[1]} tokens where sequence_length is {length}")
    limits = {"tokens": vocab_size, "targets": vocab_size, "answer": length}
    for key in limits.keys() & batch.keys():
        values = batch[key][batch[key] != NOT_SCORED] if key == "targets" else batch[key]
        if not len(values):
            yield failed("nothing is scored: all targets are -100")
        least, most = int(values.min()), int(values.max())
        limit = "vocab_size" if limits[key] == vocab_size else "sequence_length"
        numbers = f"{key} from {least} to {most}, and {limit} is {limits[key]}"
        yield Outcome(least >= 0 and most < limits[key], numbers)


@data_law(
    "questions and answers have the declared lengths",
    "They have at most as many symbols as `lengths` says, an answer at least one, from 0 to `symbols` - 1.",
    only("its examples are not drawn from questions", lambda subject: isinstance(subject.dataset, Questions)),
)
def declared_lengths(subject: DatasetSubject) -> Iterator[Outcome]:
    questions, draws, where = subject.dataset, Draws("check"), line_of_function(type(subject.dataset).draw)
    for row in range(64):
        size = questions.smallest + row % 8
        parts = questions.draw(size, Chance(draws, row, AHEAD))
        for what, symbols, most in zip(("question", "answer"), parts, questions.lengths(size), strict=True):
            if len(symbols) > most or (what == "answer" and not symbols):
                yield failed(f"a {what} of {len(symbols)} symbols, where lengths({size}) says {most}", where)
            if symbols and not (min(symbols) >= 0 and max(symbols) < questions.symbols):
                yield failed(
                    f"a {what} has symbols {min(symbols)} to {max(symbols)} of {questions.symbols}", where
                )
    yield passed()


@data_law("the same seed gives the same tokens", "Opened twice with one seed, the examples are the same.")
def same_seed(subject: DatasetSubject) -> Iterator[Outcome]:
    for split in ("train", "valid"):
        yield _same(_first(subject.source.dataset(split)), _first(subject.again.dataset(split)), split)


@data_law("validation does not depend on the seed", "Another seed gives the same validation examples.")
def validation_is_fixed(subject: DatasetSubject) -> Iterator[Outcome]:
    yield _same(_first(subject.source.dataset("valid")), _first(subject.other.dataset("valid")), "valid")


@data_law("an example depends on its index alone", "An example is the same alone and among others.")
def by_index(subject: DatasetSubject) -> Iterator[Outcome]:
    dataset = subject.source.dataset("train")
    together = _first(dataset)
    count = min(SOME, len(dataset))
    for index in (count - 1, 0, count // 2):
        among = {key: value[index : index + 1] for key, value in together.items()}
        yield _same(among, _batch(dataset, [index]), f"example {index}, alone and among others")


@data_law("training resumes at the next batch", "A loader with another's state continues where that one is.")
def resumes(subject: DatasetSubject) -> Iterator[Outcome]:
    loader, resumed = subject.source.train_loader(), subject.again.train_loader()
    batches = iter(loader)
    for _ in range(min(3, len(loader))):
        next(batches)
    resumed.load_state_dict(loader.state_dict())
    yield _same(next(iter(loader)), next(iter(resumed)), "the next batch")


@data_law("devices share a batch, no example twice", "The parts of two devices are the batch of one.")
def shared(subject: DatasetSubject) -> Iterator[Outcome]:
    batch = next(iter(subject.source.train_loader()))
    parts = [next(iter(subject.source.train_loader(rank, 2))) for rank in range(2)]
    yield _same(batch, {key: torch.cat([part[key] for part in parts]) for key in batch}, "two devices")


@data_law("validation examples are not in the training set", "No row of validation is trained on.")
def held_out(subject: DatasetSubject) -> Iterator[Outcome]:
    valid = subject.source.dataset("valid")
    share = getattr(valid, "seen_in_training", lambda length: 0.0)(subject.source.recipe.data.sequence_length)
    if share:
        yield passed("it declares that its examples are too few to hold any out")
        return
    rows = _first(subject.source.dataset("train"), 16)["tokens"].tolist()
    trained = {tuple(row) for row in rows}
    seen = sum(tuple(row) in trained for row in _first(valid)["tokens"].tolist())
    yield Outcome(seen == 0, f"{seen} validation examples are trained on")
