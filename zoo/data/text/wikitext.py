"""WikiText-2 and WikiText-103 (Merity et al. 2016, arXiv:1609.07843), tokenised and with <unk>.

From the official files, or the same text fetched from the Hugging Face hub: both give the same documents,
byte for byte.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo.data.text import SPLITS, Corpus, stamp
from zoo.data.text.records import read_lines
from zoo.errors import InputError, Problem
from zoo.launch.signals import signals_deferred

REPOSITORY = "Salesforce/wikitext"
HUB_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
PATIENCE = 5.0  # seconds for the hub's first answer


def open_wikitext(name: str, root: Path) -> Corpus:
    """`name` is wikitext-2 or wikitext-103. Looks for `root/name/wiki.*.tokens`, then for
    `root/wiki.*.tokens` where root bears the corpus's name, then fetches. Raises InputError for a folder
    with some of the files.
    """
    folders = [root / name]
    # A folder of another name might hold the other WikiText, and one must not pass for the other.
    if root.resolve().name in (name, f"{name}-v1"):
        folders.append(root)
    for folder in folders:
        paths = {split: folder / f"wiki.{split}.tokens" for split in SPLITS}
        missing = [path.name for path in paths.values() if not path.is_file()]
        if not missing:
            identity = ["wikitext", *map(stamp, paths.values())]
            return Corpus(name, identity, functools.partial(_read, paths), newline_is_word=True)
        if len(missing) < len(paths):
            raise InputError(Problem(f"{name}: the folder lacks {' and '.join(missing)}", where=str(folder)))

    def documents(split: str) -> Iterator[str]:
        batches = fetch(name, tuple(folders))[HUB_SPLITS[split]].iter(1000)
        return articles(row or " \n" for batch in batches for row in batch["text"])

    return Corpus(name, ["hub", REPOSITORY, f"{name}-v1"], documents, newline_is_word=True)


def _read(paths: dict[str, Path], split: str) -> Iterator[str]:
    return articles(read_lines(paths[split]))


def articles(lines: Iterable[str]) -> Iterator[str]:
    """Cut lines into articles, which joined give the lines again.

    An article begins with the blank line before its ` = Title = `. The blank lines on both sides tell a title
    from the rows of some tables, which are written the same way.
    """
    article: list[str] = []
    for line in lines:
        if line.isspace() and len(article) >= 2 and _is_title(article[-1]) and article[-2].isspace():
            title = article[-2:]
            if len(article) > 2:
                yield "".join(article[:-2])
            article = title
        article.append(line)
    if article:
        yield "".join(article)


def _is_title(line: str) -> bool:
    return line.startswith(" = ") and line.endswith(" = \n") and not line.startswith(" = = ")


@functools.cache
def fetch(name: str, looked_at: tuple[Path, ...]) -> Any:
    """The `datasets.DatasetDict` of a corpus: from the hub, or from what `datasets` kept of an earlier fetch.

    Raises InputError, which says where files were looked for, if it does not come.
    """
    with signals_deferred():
        import datasets

    unreachable = why_unreachable()
    try:
        with quiet(offline=unreachable is not None):
            return datasets.load_dataset(REPOSITORY, f"{name}-v1")
    except Exception as error:  # of the twenty kinds that are raised, all mean: it did not come
        files = [f"wiki.{split}.tokens" for split in SPLITS]
        paths = "\n".join(f"    {folder / file}" for folder in looked_at for file in files)
        message = (
            f"the corpus {name} cannot be had.\n"
            f"  Not on disk; looked for\n{paths}\n"
            f"  Not fetched from https://huggingface.co/datasets/{REPOSITORY}: "
            f"{unreachable or brief(error)}\n"
            f"  Two ways to get it:\n"
            f"    1. where there is a network, run the same command again: it is fetched and kept;\n"
            f"    2. put {', '.join(files)} into {looked_at[0]}, or say with "
            f"--set data.root=FOLDER where a folder {name}/ with them lies."
        )
        raise InputError(Problem(message)) from None


def why_unreachable(repository: str | None = None) -> str | None:
    """None if the hub answers that it has a dataset (WikiText if None); else why not.

    Asked in a thread, because a look-up of a host name knows no time limit: `datasets` by itself would try
    for 24 s to minutes and report every attempt, also where a proxy answers each with an error of its own.
    """
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    answer: list[str | None] = []

    def ask() -> None:
        try:
            HfApi().dataset_info(repository or REPOSITORY, timeout=PATIENCE)
            answer.append(None)
        except Exception as error:  # a network that is not there, or an answer that is not the hub's
            answer.append(f"{constants.ENDPOINT} cannot be reached ({brief(error)})")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return answer[0] if answer else f"{constants.ENDPOINT} did not answer within {PATIENCE:.0f} s"


def brief(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]


@contextmanager
def quiet(offline: bool) -> Iterator[None]:
    """Without the retries and notices of `datasets`, which if `offline` looks only at what it has on disk."""
    import datasets
    from huggingface_hub import constants

    # Both read their flag at each call, but the environment variable only at import.
    modules = [constants, datasets.config]
    before = [module.HF_HUB_OFFLINE for module in modules]
    logging.disable()
    try:
        for module in modules:
            module.HF_HUB_OFFLINE = offline
        yield
    finally:
        logging.disable(logging.NOTSET)
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = value
