"""Any dataset of the Hugging Face hub, or a folder of files that `datasets` opens in the same way."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zoo.console import shows_progress, waiting
from zoo.data.text import Corpus, stamp
from zoo.data.text.splits import from_tables
from zoo.errors import InputError, Problem, first_line


def open_hub(
    name: str, config: str | None, revision: str | None, files: str | None, split: str | None, column: str
) -> Corpus:
    """The text of a dataset, in its splits by name; a single one is divided among all.

    The arguments are the options of the dataset `hub`. Documents raise InputError where the dataset is not
    available or has no such column.
    """
    local = sorted(path for path in Path(name).rglob("*") if path.is_file())
    identity = ["hub", name, config, revision, files, split, column, *map(stamp, local)]

    @functools.cache
    def corpus() -> Corpus:
        import datasets

        advice = (
            "  1. where there is a network, run the same command again: it is fetched and kept;\n"
            "  2. or save it there with `datasets` (`load_dataset(...).save_to_disk(FOLDER)`), and use "
            "--set data.name=text --set data.root=FOLDER here."
        )
        with reaching(name, advice):
            tables = datasets.load_dataset(name, config, revision=revision, data_files=files, split=split)
        return from_tables("hub", identity, tables, column, name, len(local))

    return Corpus(
        "hub",
        identity,
        lambda split: corpus().documents(split),
        split=lambda: corpus().split(),
        size=lambda: corpus().size(),
        unsplit=lambda: corpus().whole().documents("valid"),
        files=len(local),
        rule="by the names of its splits, or by a hash",
    )


@contextmanager
def reaching(name: str, advice: str) -> Iterator[None]:
    """Around the loading of a dataset: any failure becomes one InputError, with advice."""
    try:
        with waiting(f"reading {name}"), quiet():
            yield
    except InputError:
        raise
    except Exception as error:  # of twenty kinds, all for one fact: the dataset is not available
        message = f"the dataset {name} is not available: {first_line(error)}\n{advice}"
        raise InputError(Problem(message, key="data.name")) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Without notices of `datasets`; its progress bars are shown by the first process on a terminal."""
    import datasets

    if not shows_progress():
        datasets.disable_progress_bars()
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
