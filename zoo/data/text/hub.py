"""Any dataset of the Hugging Face hub, or a folder of files that `datasets` opens the same way.

What is larger than asked for is streamed: its beginning is kept below the cache, and read from there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zoo.console import progress_bar
from zoo.data.text import Corpus, stamp
from zoo.data.text.plain_text import HELD_OUT, SPLIT_NAMES, from_tables, text_of_rows
from zoo.data.text.wikitext import brief, quiet, why_unreachable
from zoo.errors import InputError, Problem
from zoo.files import fsync_tree
from zoo.launch.signals import signals_deferred


def open_hub(
    name: str, config: str | None, revision: str | None, column: str, max_bytes: int, kept: Path
) -> Corpus:
    """The text of a dataset, in its splits by name; a single one is dealt to all.

    Args:
        name: of the dataset, as `datasets.load_dataset` takes it.
        config: which of its configurations.
        revision: branch, tag or commit; the newest when it is first read if None.
        column: which holds the text.
        max_bytes: of files; a larger dataset is streamed, and so much text taken from the beginning of its
            training split, and a twentieth of it from each other one.
        kept: folder for what is streamed.

    Raises:
        InputError: when documents are asked for and it does not come, or has no such column.
    """
    folder = Path(name)
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    identity = ["hub", name, config, revision, column, max_bytes, *map(stamp, files)]

    @functools.cache
    def corpus() -> Corpus:
        with signals_deferred():
            import datasets
        unreachable = None if folder.is_dir() else why_unreachable(name)
        given = {"path": name, "name": config, "revision": revision}
        try:
            with quiet(offline=unreachable is not None):
                size = sum(file.stat().st_size for file in files)
                if not files:
                    size = datasets.load_dataset_builder(**given).info.dataset_size
                if size is not None and size <= max_bytes:
                    tables = datasets.load_dataset(**given)
                else:
                    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]
                    tables = _stream(given, column, max_bytes, kept / key)
        except InputError:
            raise
        except Exception as error:  # of the twenty kinds that are raised, all mean: it did not come
            reason = (
                f"{unreachable}; it is not kept of an earlier time either" if unreachable else brief(error)
            )
            message = (
                f"the dataset {name} cannot be had: {reason}\n"
                "  1. where there is a network, run the same command again: it is fetched and kept;\n"
                "  2. or save it there with `datasets` (`load_dataset(...).save_to_disk(FOLDER)`), and say "
                "--set data.name=text --set data.root=FOLDER here."
            )
            raise InputError(Problem(message, key="data.id")) from None
        return from_tables("hub", identity, tables, column, name)

    return Corpus("hub", identity, lambda split: corpus().documents(split), split=lambda: corpus().split())


def _stream(given: dict[str, Any], column: str, max_bytes: int, folder: Path) -> Any:
    """The beginning of every split that is ours, as tables in `folder`, which is complete or not there."""
    import datasets

    features = datasets.Features({column: datasets.Value("string")})
    if not folder.exists():
        streams = datasets.load_dataset(**given, streaming=True)
        part = folder.with_name(f"{folder.name}.part-{uuid.uuid4().hex[:8]}")
        only = len(streams) == 1
        try:
            for split, rows in streams.items():
                ours = SPLIT_NAMES.get(split.lower())
                if not (ours or only):
                    continue
                limit = max_bytes if only or ours == "train" else int(max_bytes * HELD_OUT)
                part.mkdir(parents=True, exist_ok=True)
                with (part / f"{split}.jsonl").open("w", encoding="utf-8") as file:
                    for text in _beginning(rows, column, given["path"], limit):
                        file.write(json.dumps({column: text}) + "\n")
            fsync_tree(part)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    names = {file.stem: str(file) for file in sorted(folder.glob("*.jsonl"))}
    return datasets.load_dataset("json", data_files=names, features=features)


def _beginning(rows: Any, column: str, where: str, limit: int) -> Iterator[str]:
    taken = 0
    with progress_bar(
        limit, f"streaming {where}", "B", unit_scale=True, unit_divisor=1024, leave=False
    ) as bar:
        for text in text_of_rows(rows, column, where):
            yield text
            size = len(text.encode())
            bar.update(size)
            taken += size
            if taken >= limit:
                return
