"""What a recipe can name besides encodings: the datasets and the tasks, and which go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from zoo.recipe import algorithmic, schema
from zoo.recipe.field_types import Section

LENGTH_FACTORS = (1, 2, 4)

LIKELIHOOD = ("nonoverlapping", "sliding", "fixed_targets", "per_position")
"""The protocols of a model that predicts the next token."""

Examples = Literal["text", "pointer", "answers"]
"""What examples are: a text without end; tokens of which one is to be pointed at; a prompt and its answer."""


@dataclass(frozen=True)
class Dataset:
    """A dataset: what it is, and where it comes from."""

    summary: str
    source: str
    gives: Examples = "text"


@dataclass(frozen=True)
class Task:
    """A task: the datasets and kinds of model that it takes, and how its models are evaluated."""

    summary: str
    takes: Examples
    kinds: tuple[str, ...]
    protocols: tuple[str, ...]


def _summary(config: type[Section]) -> str:
    """The first sentence of a docstring, in the manner of the others here."""
    first = (config.__doc__ or "").split(".")[0]
    return first[:1].lower() + first[1:]


DATASETS = {
    "wikitext-2": Dataset("2 million words of Wikipedia", "data.root/wikitext-2, else fetched by `datasets`"),
    "wikitext-103": Dataset(
        "103 million words of Wikipedia", "data.root/wikitext-103, else fetched by `datasets`"
    ),
    "text": Dataset("anybody's plain text, split by document", "data.root: a file or a folder"),
    "sample": Dataset("generated text whose names and facts recur over long distances", "generated, seeded"),
    "max_index": Dataset(
        "random tokens; the answer is the index of the first largest", "generated", gives="pointer"
    ),
    **{
        name: Dataset(_summary(config), "generated", gives="answers")
        for name, config in algorithmic.TASKS.items()
    },
    "passkey": Dataset(
        "find a number that stands in one sentence of a long text",
        "generated, from data.corpus",
        gives="answers",
    ),
}

TASKS = {
    "language_modelling": Task("predict the next token", "text", ("decoder",), LIKELIHOOD),
    "masked_language_modelling": Task("predict the hidden tokens", "text", ("encoder",), ("nonoverlapping",)),
    "max_index": Task("point at the first largest token", "pointer", ("decoder", "encoder"), ("accuracy",)),
    "answering": Task("continue a prompt with its answer", "answers", ("decoder",), ("accuracy",)),
}

_MEMBERS = {"data": get_args(get_args(schema.Data)[0]), "task": get_args(get_args(schema.Task)[0])}


def section_class(section: str, name: Any) -> type[Section] | None:
    """The model of a section of the recipe; of `data` and `task` the one that their name chooses."""
    if section in _MEMBERS:
        for member in _MEMBERS[section]:
            if name in get_args(member.model_fields["name"].annotation):
                return member
        return None
    annotation = schema.Recipe.model_fields[section].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def usual_task(data: Any, kind: Any) -> str | None:
    """The task that a dataset and a kind of model suggest; None where either is unknown."""
    for name, task in TASKS.items():
        if data in [*DATASETS] and DATASETS[data].gives == task.takes and kind in task.kinds:
            return name
    return None
