"""Any dataset of the Hugging Face hub, or a folder of files that `datasets` opens in the same way.

A dataset larger than asked for is streamed: its beginning is kept below the cache and read from there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from zoo.console import progress_bar
from zoo.data.text import Corpus, stamp
from zoo.data.text.splits import HELD_OUT, SPLIT_NAMES, from_tables, text_of_rows
from zoo.errors import InputError, Problem
from zoo.files import atomic_folder

PATIENCE = 5.0  # seconds for the first answer of the hub


def open_hub(
    name: str, config: str | None, revision: str | None, column: str, max_bytes: int, kept: Path
) -> Corpus:
    """The text of a dataset, in its splits by name; a single one is divided among all.

    Args:
        name: of the dataset, as `datasets.load_dataset` takes it.
        config: its configuration.
        revision: branch, tag or commit; if None, the newest when it is first read.
        column: the column with the text.
        max_bytes: a larger dataset is streamed: this much text from the beginning of its training split, and
            a twentieth of it from each other one.
        kept: folder for streamed text.

    Raises:
        InputError: when documents are read and the dataset is not available or has no such column.
    """
    files = sorted(path for path in Path(name).rglob("*") if path.is_file())
    identity = ["hub", name, config, revision, column, max_bytes, *map(stamp, files)]

    @functools.cache
    def corpus() -> Corpus:
        import datasets

        given = {"path": name, "name": config, "revision": revision}
        advice = (
            "  1. where there is a network, run the same command again: it is fetched and kept;\n"
            "  2. or save it there with `datasets` (`load_dataset(...).save_to_disk(FOLDER)`), and use "
            "--set data.name=text --set data.root=FOLDER here."
        )
        with reaching(name, advice, local=bool(files)):
            size = sum(file.stat().st_size for file in files)
            if not files:
                size = datasets.load_dataset_builder(**given).info.dataset_size
            if size is not None and size <= max_bytes:
                tables = datasets.load_dataset(**given)
            else:
                key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]
                tables = _stream(given, column, max_bytes, kept / key)
        return from_tables("hub", identity, tables, column, name)

    return Corpus("hub", identity, lambda split: corpus().documents(split), split=lambda: corpus().split())


def _stream(given: dict[str, Any], column: str, max_bytes: int, folder: Path) -> Any:
    """The beginnings of the splits as tables, which `folder` keeps."""
    import datasets

    if not folder.exists():
        streams = datasets.load_dataset(**given, streaming=True)
        with atomic_folder(folder) as made:
            for split, rows in streams.items():
                ours = "train" if len(streams) == 1 else SPLIT_NAMES.get(split.lower())
                if ours:
                    limit = max_bytes if ours == "train" else int(max_bytes * HELD_OUT)
                    with (made / f"{split}.jsonl").open("w", encoding="utf-8") as file:
                        for text in _beginning(rows, column, given["path"], limit):
                            file.write(json.dumps({column: text}) + "\n")
    names = {file.stem: str(file) for file in sorted(folder.glob("*.jsonl"))}
    features = datasets.Features({column: datasets.Value("string")})
    return datasets.load_dataset("json", data_files=names, features=features)


def _beginning(rows: Any, column: str, where: str, limit: int) -> Iterator[str]:
    options = {"unit_scale": True, "unit_divisor": 1024, "leave": False}
    with progress_bar(limit, f"streaming {where}", "B", **options) as bar:
        for text in text_of_rows(rows, column, where):
            yield text
            bar.update(len(text.encode()))
            if bar.n >= limit:
                return


@contextmanager
def reaching(name: str, advice: str, local: bool = False) -> Iterator[None]:
    """Around the loading of a dataset: any failure becomes one InputError, with advice."""
    try:
        with quiet(), nullcontext() if local else hub_or_cache():
            yield
    except InputError:
        raise
    except Exception as error:  # of twenty kinds, all for one fact: the dataset is not available
        message = f"the dataset {name} is not available: {first_line(error)}\n{advice}"
        raise InputError(Problem(message, key="data.name")) from None


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Around requests to the hub: where it does not answer in time, files that were fetched before are used.

    Its libraries try for 20 to 47 s before they give up. Raises ConnectionError where files are missing.
    """
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import LocalEntryNotFoundError

    cause = f"none within {PATIENCE:g} s"

    def ask() -> None:
        nonlocal cause
        try:
            get_session().head(constants.ENDPOINT)
            cause = ""
        except Exception as error:  # of the network, of proxies, of certificates
            cause = first_line(error)

    # A thread, since no timeout covers the look-up of a name.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    if constants.HF_HUB_OFFLINE or not cause:
        yield
        return
    constants.HF_HUB_OFFLINE, message = True, f"no answer from {constants.ENDPOINT}: {cause}"
    try:
        yield
    except (ConnectionError, LocalEntryNotFoundError) as error:
        raise ConnectionError(message) from error
    finally:
        constants.HF_HUB_OFFLINE = False


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


@contextmanager
def quiet() -> Iterator[None]:
    """Without progress bars and notices of `datasets`."""
    import datasets

    datasets.disable_progress_bars()
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
