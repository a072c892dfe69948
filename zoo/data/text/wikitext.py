"""WikiText-2 and WikiText-103 (Merity et al. 2016, arXiv:1609.07843), tokenized and with <unk>.

From the official files, or the same text from the Hugging Face hub: both give the same documents, byte for
byte.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from zoo.data.text import SPLITS, Corpus, stamp
from zoo.data.text.files import read_lines
from zoo.data.text.hub import reaching
from zoo.errors import InputError, Problem

REPOSITORY = "Salesforce/wikitext"
HUB_SPLITS = {"train": "train", "valid": "validation", "test": "test"}


def open_wikitext(name: str, root: Path) -> Corpus:
    """wikitext-2 or wikitext-103 from `root/name/wiki.*.tokens`, from `root/wiki.*.tokens` where root has the
    corpus's name, or from the hub. Raises InputError for a folder with some of the files.
    """
    folders = [root / name]
    # A folder of another name might hold the other WikiText.
    if root.resolve().name in (name, f"{name}-v1"):
        folders.append(root)
    for folder in folders:
        paths = {split: folder / f"wiki.{split}.tokens" for split in SPLITS}
        missing = [path.name for path in paths.values() if not path.is_file()]
        if not missing:
            identity = ["wikitext", *map(stamp, paths.values())]

            def read(split: str, paths: dict[str, Path] = paths) -> Iterator[str]:
                return articles(read_lines(paths[split]))

            return Corpus(name, identity, read, True, files=len(paths))
        if len(missing) < len(paths):
            raise InputError(Problem(f"{name}: the folder lacks {' and '.join(missing)}", where=str(folder)))
    advice = (
        "  1. where there is a network, run the same command again: it is fetched and kept;\n"
        f"  2. or put {', '.join(path.name for path in paths.values())} into {folders[0]}, or name the "
        f"folder that contains {name}/ with --set data.root=FOLDER."
    )

    @functools.cache
    def tables() -> Any:
        import datasets

        with reaching(REPOSITORY, advice):
            return datasets.load_dataset(REPOSITORY, f"{name}-v1")

    def documents(split: str) -> Iterator[str]:
        batches = tables()[HUB_SPLITS[split]].iter(1000)
        return articles(row or " \n" for batch in batches for row in batch["text"])

    return Corpus(name, ["hub", REPOSITORY, f"{name}-v1"], documents, True)


def articles(lines: Iterable[str]) -> Iterator[str]:
    """Cut lines into articles, which joined give the lines again.

    An article begins with the blank line before its ` = Title = `. The blank lines on both sides distinguish
    a title from the rows of some tables, which look the same.
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
