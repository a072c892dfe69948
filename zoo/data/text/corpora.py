"""A corpus by its name, and where corpora and caches lie."""

from __future__ import annotations

import os
from pathlib import Path

from zoo.data.text.corpus import Corpus
from zoo.data.text.plain_text import open_text
from zoo.data.text.sample import open_sample
from zoo.data.text.wikitext import open_wikitext
from zoo.errors import InputError, Problem


def open_corpus(data) -> Corpus:
    """The corpus that the recipe's `data` section names.

    Raises InputError where it cannot be had. WikiText that is not on disk is fetched only when it is first
    read.
    """
    root = Path(data.root) if getattr(data, "root", None) else None
    if data.name in ("wikitext-2", "wikitext-103"):
        return open_wikitext(data.name, root or default_root())
    if data.name == "text":
        if root is None:
            raise InputError(Problem("say which folder or file of plain text to read", key="data.root"))
        return open_text(root)
    if data.name == "sample":
        return open_sample(data.documents, data.words, data.corpus_seed)
    raise InputError(Problem(f"no corpus is called {data.name!r}", key="data.name"))


def default_root() -> Path:
    """Where corpora are looked for when the recipe does not say: ZOO_DATA, or `data/`."""
    return Path(os.environ.get("ZOO_DATA") or "data")


def default_cache() -> Path:
    """Where tokens are kept when the recipe does not say."""
    return default_root() / "cache"
