"""WikiText-2 and WikiText-103 (Merity et al. 2016, arXiv:1609.07843), tokenised and with <unk>.

From the official files, or the same text fetched from the Hugging Face hub: both give the same documents,
byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from zoo.data.text import hub
from zoo.data.text.corpus import SPLITS, Corpus, read_lines, stamp
from zoo.errors import InputError, Problem

FILES = {split: f"wiki.{split}.tokens" for split in SPLITS}
HUB_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
BLANK = " \n"
ADDRESS = "https://huggingface.co/datasets/Salesforce/wikitext"


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
        missing = [file for file in FILES.values() if not (folder / file).is_file()]
        if not missing:
            return from_folder(name, folder)
        if len(missing) < len(FILES):
            raise InputError(Problem(f"{name}: the folder lacks {' and '.join(missing)}", where=str(folder)))
    return from_hub(name, folders)


def from_folder(name: str, folder: Path) -> Corpus:
    """The corpus in the three official files."""
    paths = {split: folder / file for split, file in FILES.items()}
    return Corpus(
        name=name,
        identity=["wikitext", *(stamp(path) for path in paths.values())],
        documents=lambda split: articles(read_lines(paths[split])),
        newline_is_word=True,
    )


def from_hub(name: str, looked_at: list[Path]) -> Corpus:
    """The corpus as `datasets` brings it; `looked_at` is for the message when it does not."""
    configuration = f"{name}-v1"

    def documents(split: str) -> Iterator[str]:
        try:
            dataset = hub.fetch(configuration)
        except hub.FetchFailed as error:
            raise InputError(Problem(cannot_be_had(name, looked_at, str(error)))) from None
        rows = (row for batch in dataset[HUB_SPLITS[split]].iter(1000) for row in batch["text"])
        return articles(row or BLANK for row in rows)

    return Corpus(name, ["hub", hub.REPOSITORY, configuration], documents, newline_is_word=True)


def cannot_be_had(name: str, looked_at: list[Path], reason: str) -> str:
    """The message when the corpus is neither on disk nor to be fetched."""
    files = ", ".join(FILES.values())
    paths = "\n".join(f"    {folder / file}" for folder in looked_at for file in FILES.values())
    return (
        f"the corpus {name} cannot be had.\n"
        f"  Not on disk; looked for\n{paths}\n"
        f"  Not fetched from {ADDRESS}: {reason}\n"
        f"  Two ways to get it:\n"
        f"    1. where there is a network, run the same command again: it is fetched and kept;\n"
        f"    2. put {files} into {looked_at[0]}, or say with "
        f"--set data.root=FOLDER where a folder {name}/ with them lies."
    )


def articles(lines: Iterable[str]) -> Iterator[str]:
    """Cut lines into articles, which joined give the lines again.

    An article begins with the blank line before its ` = Title = `. The blank lines on both sides tell a title
    from the rows of some tables, which are written the same way.
    """
    article: list[str] = []
    for line in lines:
        if line.isspace() and len(article) >= 2 and is_title(article[-1]) and article[-2].isspace():
            title = article[-2:]
            if len(article) > 2:
                yield "".join(article[:-2])
            article = title
        article.append(line)
    if article:
        yield "".join(article)


def is_title(line: str) -> bool:
    """Whether a line is written as a heading of the first level."""
    line = line.rstrip("\n")
    return line.startswith(" = ") and line.endswith(" = ") and not line.startswith(" = = ")
