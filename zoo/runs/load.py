"""Loading a trained model from a checkpoint, without running any code that the file names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from zoo.errors import InputError, Problem, first_line
from zoo.recipe import Recipe, resolve
from zoo.recipe.diff import ENCODING, affects, diff, is_among, may_change_after_training
from zoo.recipe.encoding import changed_label, encoding_changes, may_change
from zoo.recipe.schema import ModelConfig
from zoo.runs.checkpoint_file import find_checkpoint, read_checkpoint
from zoo.runs.code_source import compare_code
from zoo.runs.folder import RECIPE
from zoo.tasks import build_task
from zoo.tasks.task import Task


@dataclass(frozen=True)
class LoadedRun:
    """A trained model, on the CPU and in evaluation mode.

    Attributes:
        path: the user's argument.
        checkpoint: the file that was read.
        folder: the run folder, or the folder of a checkpoint that lies alone.
    """

    path: Path
    checkpoint: Path
    folder: Path
    task: Task

    @property
    def tokenizer(self) -> Path:
        """The tokenizer of a model that reads text; the file may be missing."""
        return self.folder / "tokenizer.json"

    @property
    def label(self) -> str:
        """Its encoding in a word, with the options that were changed after training."""
        return changed_label(self.task.recipe.as_dict()["model"]["encoding"], self.task.changed)


def run_folder_of(checkpoint: Path) -> Path | None:
    """The run folder in which a checkpoint lies, or None for one that lies alone."""
    folder = checkpoint.resolve().parent.parent
    return folder if (folder / RECIPE).is_file() else None


def load(
    path: str | Path,
    device: str = "cpu",
    plugins: str | Path | Sequence[str | Path] = (),
    sets: Sequence[str] = (),
) -> torch.nn.Module:
    """The trained model of a run or a checkpoint, ready to use: `logits = model(tokens)`.

    Args:
        path: a run folder (its last checkpoint is taken) or a checkpoint file.
        device: where to put it; a run made on a GPU loads on a CPU and the other way round.
        plugins: the Python file of an encoding that it was trained with, or several.
        sets: `key=value` changes that leave its weights as they are, such as `model.encoding=rerope`.

    Returns: a `zoo.models.transformer.Transformer` in evaluation mode.

    Raises:
        InputError: nothing usable there, or no such device here.
    """
    validate_device(device)
    named = [plugins] if isinstance(plugins, str | Path) else plugins
    return load_run(Path(path), sets, named).task.model.to(device)


def validate_device(device: str) -> None:
    """Raises InputError for a device that is not here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {str(device)!r} cannot be used here: {first_line(error)}") from error


def load_run(path: Path, sets: Sequence[str] = (), plugins: Sequence[str | Path] = ()) -> LoadedRun:
    """The trained model in a checkpoint, for every command that uses one.

    Args:
        path: a checkpoint or a run folder.
        sets: `key=value` changes to its recipe; none that would make it another model. What of its encoding
            may change, the encoding declares (`after_training`, `replaces`), what of the model, the schema;
            `Task.changed` records it.
        plugins: Python files that the user names; one that only the checkpoint names is never run.

    Raises:
        InputError: nothing usable there, an encoding whose plugin was not named, or a change of the model.
    """
    checkpoint = find_checkpoint(path)
    content = read_checkpoint(checkpoint)
    stored, card = content["hyper_parameters"]["recipe"], content.get("zoo_card")
    wrong: InputError | None = None
    try:
        named = [str(plugin) for plugin in plugins]
        recipe = resolve({**stored, "plugins": named}, sets, trained=True)
    except InputError as error:
        wrong = error
    missing, digests = compare_code(card, path)  # a change may be the cause of an unknown option
    try:
        if wrong is not None:
            # A plugin that was named and cannot be read has its own message.
            of_plugin = any((one.key or "").startswith("plugins") for one in wrong.problems)
            raise InputError(wrong.problems if of_plugin or not missing else map(Problem, missing))
        changed = changes_of_model(stored, recipe) if sets else {}
        run = restored_run(path, checkpoint, content, recipe)
    except InputError as error:
        problems = error.problems
        raise InputError([replace(one, where=one.where or str(path)) for one in problems]) from error
    # Results of other code are marked as changed.
    run.task.changed = changed | digests
    return run


def restored_run(path: Path, checkpoint: Path, content: dict[str, Any], recipe: Recipe) -> LoadedRun:
    """The trained model of a checkpoint whose content was read, with a recipe that was resolved."""
    folder = run_folder_of(checkpoint) or checkpoint.parent
    task = build_task(recipe, content["hyper_parameters"]["vocab_size"])
    task.restore(content["state_dict"])
    task.card = content.get("zoo_card", {})
    return LoadedRun(path, checkpoint, folder, task.eval())


def changes_of_model(stored: dict[str, Any], recipe: Recipe) -> dict[str, Any]:
    """The changes to encoding and model of a stored recipe, by dotted key.

    Results are filed under the run: they must belong to the trained model.

    Raises:
        InputError: changes that would make it another model, with all that may be changed for this run.
    """
    changed = recipe.as_dict()
    # A run of a version without a key of the model has its default.
    fields = ModelConfig.model_fields.items()
    defaults = {key: field.get_default() for key, field in fields if not field.is_required()}
    stored = {**stored, "model": {**defaults, **stored["model"]}}
    changes = [*encoding_changes(*(one["model"]["encoding"] for one in (stored, changed)))]
    for key, old, new in diff(stored, changed):
        if not is_among(key, (ENCODING,)):
            changes.append((key, old, new, affects(key).after_training))
    refused: list[Problem] = []
    for key, old, new in (change[:3] for change in changes if not change[3]):
        why = f"the run was trained with {old!r}, and {new!r} would make it another"
        other = "; to score other data, give --data NAME (in Python data=...)" if key[:5] == "data." else ""
        refused.append(Problem(why + other, key))
    if refused:
        may = ", ".join([*may_change_after_training(), *may_change(stored["model"]["encoding"])])
        last = f"{refused[-1].message}; after training only these can be set: {may}"
        raise InputError([*refused[:-1], replace(refused[-1], message=last)])
    of_model = [change for change in changes if is_among(change[0], ("model",))]
    return {key: new for key, _, new, _ in of_model if affects(key).effect == "weights"}
