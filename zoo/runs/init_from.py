"""Starting a run from the weights of another (`init_from`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from zoo.data.source import DataSource
from zoo.errors import InputError, Problem
from zoo.files import file_sha256
from zoo.recipe import Recipe
from zoo.recipe.diff import may_change_after_training
from zoo.recipe.encoding import encodings_in
from zoo.runs.checkpoint_file import find_checkpoint, read_checkpoint
from zoo.tasks.task import Task

KEY = "init_from"
ENCODING = "model.encoding."
"""Prefix of the names of an encoding's parameters and buffers."""
OWN = ("model.encoding", "model.dropout", "model.init_std")
"""Keys of `model` that a run may have of its own, besides those that may change after training."""


@dataclass(frozen=True)
class Origin:
    """A checkpoint that a run starts from: its weights by name, and facts about its run.

    `facts` are for the card: the path as given, how long was trained, the SHA-256 of the checkpoint file.
    """

    path: str
    weights: dict[str, Tensor]
    recipe: dict[str, Any]
    vocab_size: int
    tokenizer: str | None
    facts: dict[str, Any]


def read_init_from(recipe: Recipe) -> Origin:
    """The weights and facts of the run folder (its last checkpoint) or checkpoint that a recipe names.

    None of its code is run.

    Raises:
        InputError: nothing usable there, or models that differ in more than the encoding.
    """
    path = recipe.init_from
    try:
        checkpoint = find_checkpoint(Path(path))
        content = read_checkpoint(checkpoint)
    except InputError as error:
        raise InputError([Problem(p.message, key=KEY) for p in error.problems]) from error
    card, settings = content.get("zoo_card") or {}, content["hyper_parameters"]
    now = recipe.model.model_dump()
    # A checkpoint that is older than a key has its default.
    defaults = {key: field.default for key, field in type(recipe.model).model_fields.items()}
    before = defaults | settings["recipe"]["model"]
    may = (*OWN, *may_change_after_training())
    problems = [
        f"model.{key} is {before[key]} there and {value} here"
        for key, value in now.items()
        if before[key] != value and f"model.{key}" not in may
    ]
    if problems:
        raise InputError(Problem(f"{path} holds another model: {'; '.join(problems)}", key=KEY))
    digest = file_sha256(checkpoint)
    return Origin(
        path=path,
        weights=content["state_dict"],
        recipe=settings["recipe"],
        vocab_size=settings["vocab_size"],
        tokenizer=card.get("fingerprint", {}).get("tokenizer"),
        facts={
            "path": path,
            "steps": card.get("steps", content.get("global_step")),
            "tokens_seen": card.get("tokens_seen"),
            "sha256": digest,
        },
    )


def init_weights(origin: Origin, task: Task) -> None:
    """Give a task the weights of an origin: all but the encodings', and theirs where they are the same ones.

    An encoding is the same if it is at the same index of a list, has the same name (also of a wrapped one)
    and parameters of the same names and shapes. Any other keeps the start that it has.

    Raises:
        InputError: the weights do not fit, or are NaN.
    """
    own = task.state_dict()
    weights = {name: value for name, value in own.items() if name.startswith(ENCODING)}
    weights |= {name: value for name, value in origin.weights.items() if not name.startswith(ENCODING)}
    weights |= _same_encodings(origin, task, own)
    try:
        task.restore(weights)
    except InputError as error:
        raise InputError([Problem(f"{origin.path}: {p.message}", key=KEY) for p in error.problems]) from error


def validate_same_tokenizer(origin: Origin, source: DataSource) -> None:
    """Raises InputError where a token id means another token here: the embedding would be of no use."""
    tokenizer = source.fingerprint["tokenizer"]
    # A published model may have more rows than its tokenizer has tokens.
    padded = origin.tokenizer == tokenizer and source.vocab_size < origin.vocab_size
    fits = padded or source.vocab_size == origin.vocab_size
    if not fits or origin.tokenizer not in (None, tokenizer):
        raise InputError(
            Problem(
                f"{origin.path} was trained with another tokenizer than this data gives (a vocabulary of "
                f"{origin.vocab_size} there, of {source.vocab_size} here): their ids mean different tokens",
                key=KEY,
            )
        )


def _same_encodings(origin: Origin, task: Task, own: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of those encodings that both models have."""
    # A list of encodings has a slot for each.
    before, now = (
        list(spec) if isinstance(spec, list | tuple) else [spec]
        for spec in (origin.recipe["model"]["encoding"], task.recipe.model.encoding)
    )
    taken: dict[str, Tensor] = {}
    for index, (old, new) in enumerate(zip(before, now, strict=False)):
        prefix = f"{ENCODING}slots.{index}."
        there, here = (
            {name: value for name, value in state.items() if name.startswith(prefix)}
            for state in (origin.weights, own)
        )
        same_shapes = {n: v.shape for n, v in there.items()} == {n: v.shape for n, v in here.items()}
        names_old, names_new = ([about.name for _, about in encodings_in(one, ())] for one in (old, new))
        if same_shapes and names_old == names_new:
            taken |= there
    return taken
