"""What a recipe can name besides encodings: the datasets and the tasks, and which go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from zoo.recipe import schema

LENGTH_FACTORS = (1, 2, 4)


@dataclass(frozen=True)
class Dataset:
    """A dataset: what it is, and where it comes from."""

    summary: str
    source: str
    text: bool = True


@dataclass(frozen=True)
class Task:
    """A task: the datasets and kinds of model that it takes, and how its models are evaluated."""

    summary: str
    text: bool
    kinds: tuple[str, ...]
    protocols: tuple[str, ...]


DATASETS = {
    "wikitext-2": Dataset("2 million words of Wikipedia", "data.root/wikitext-2, else fetched by `datasets`"),
    "wikitext-103": Dataset(
        "103 million words of Wikipedia", "data.root/wikitext-103, else fetched by `datasets`"
    ),
    "text": Dataset("anybody's plain text, split by document", "data.root: a file or a folder"),
    "sample": Dataset("generated text whose names and facts recur over long distances", "generated, seeded"),
    "max_index": Dataset(
        "random tokens; the answer is the index of the first largest", "generated", text=False
    ),
}

TASKS = {
    "language_modelling": Task("predict the next token", True, ("decoder",), ("nonoverlapping",)),
    "masked_language_modelling": Task("predict the hidden tokens", True, ("encoder",), ("nonoverlapping",)),
    "max_index": Task("point at the first largest token", False, ("decoder", "encoder"), ("accuracy",)),
}

_MEMBERS = (*get_args(get_args(schema.Data)[0]), *get_args(get_args(schema.Task)[0]))


def section_class(section: str, name: Any) -> type[schema.Section] | None:
    """The model of a section of the recipe; of `data` and `task` the one that their name chooses."""
    if section in ("data", "task"):
        for member in _MEMBERS:
            if name in get_args(member.model_fields["name"].annotation):
                return member
        return None
    annotation = schema.Recipe.model_fields[section].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, schema.Section) else None


def usual_task(data: Any, kind: Any) -> str | None:
    """The task that a dataset and a kind of model suggest; None where either is unknown."""
    for name, task in TASKS.items():
        if data in [*DATASETS] and DATASETS[data].text == task.text and kind in task.kinds:
            return name
    return None
