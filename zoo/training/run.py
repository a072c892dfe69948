"""A run in training: where it starts, its folder, its lock, its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from zoo.console import command
from zoo.data.source import DataSource
from zoo.errors import InputError, Problem, collect
from zoo.evaluation.measurement import Measurement
from zoo.evaluation.store import validate_results_folder
from zoo.launch.devices import devices_taken
from zoo.launch.ranks import is_first_process
from zoo.recipe import Recipe, validate_trainable
from zoo.recipe.encoding import encodings_in
from zoo.runs.card import changed_data, steps_done
from zoo.runs.checkpoint_file import alternatives, read_checkpoint
from zoo.runs.code_source import compare_code
from zoo.runs.folder import (
    LAST,
    RECIPE,
    RunLock,
    existing_run,
    max_steps_problem,
    new_run,
    remove_leftovers,
    validate_free,
    validate_same_recipe,
    write_recipe,
)
from zoo.runs.init_from import Origin, init_weights, read_init_from, validate_same_tokenizer
from zoo.tasks import build_encoding, build_task
from zoo.tasks.task import Task
from zoo.training.auto import choose_auto
from zoo.training.devices import validate_precision, validate_world_size
from zoo.training.loggers import validate_installed

Resume = bool | Literal["auto"]


@dataclass
class TrainingRun:
    """A run from its first check to its end.

    Attributes:
        recipe: with `auto` chosen.
        out: the folder that the user asked for.
        folder: the run's; None until a new run is opened, and in further processes until the trainer starts.
        checkpoint, content: the one to resume from; `content` is None again once the trainer has it.
        is_new, begun: whether this process has made the folder, and the trainer.
        saved_at: the step of the last checkpoint, 0 before the first.
        measurements, closing: those of the evaluation at the end, and the lines to print below their tables.
    """

    recipe: Recipe
    out: Path | None = None
    folder: Path | None = None
    checkpoint: Path | None = None
    content: dict[str, Any] | None = None
    origin: Origin | None = None
    card: dict[str, Any] = field(default_factory=dict)
    lock: RunLock | None = None
    is_new: bool = False
    begun: bool = False
    saved_at: int = 0
    measurements: Sequence[Measurement] = ()
    closing: Sequence[str] = ()

    def validate(self, source: DataSource) -> None:
        """Raises InputError for data that this run cannot be trained on, or results that it cannot store."""
        recipe = self.recipe
        if self.folder:
            validate_results_folder(self.folder)
        if self.origin:
            validate_same_tokenizer(self.origin, source)
        differing = changed_data(self.content["zoo_card"], source) if self.content else []
        if differing:
            message = (
                f"{'; '.join(differing)} since {self.checkpoint} was saved: the run cannot be continued on "
                f"other data. Restore the text (or give its folder with --set data.root=...), or start a new "
                f"run"
            )
            raise InputError(Problem(message, key="data.root" if source.kind == "text" else "data"))
        trainer = recipe.trainer
        devices = devices_taken(trainer.devices, trainer.accelerator)
        source.validate(devices * trainer.num_nodes // trainer.context_parallel)

    def build(self, source: DataSource) -> Task:
        """The model at its start: of the recipe, or with the weights of `init_from`."""
        # The vocabulary of an imported model may be padded.
        before = self.content["hyper_parameters"]["vocab_size"] if self.content else None
        known = self.origin.vocab_size if self.origin else before
        task = build_task(self.recipe, known or source.vocab_size)
        if self.origin:
            init_weights(self.origin, task)
            self.origin = replace(self.origin, weights={})  # not kept while it is trained
        return task

    def open(self) -> None:
        """Make the folder of a new run, and lock it; only the first process does."""
        if is_first_process():
            folder = self.folder or new_run(self.recipe, self.out)
            self.lock = RunLock(folder)
            self.folder, self.is_new = folder, self.folder is None

    def write_start(self, source: DataSource) -> None:
        """Write what does not change while the run is trained."""
        remove_leftovers(self.folder)
        write_recipe(self.folder, self.recipe)
        source.save_tokenizer(self.folder)

    @property
    def how_to_continue(self) -> str:
        """The command that continues the run."""
        again = command("fit", "--recipe", self.folder / RECIPE, "--out", self.folder, "--resume")
        return f"{'continue' if self.saved_at else 'begin again'}: {again}"


def find_start(recipe: Recipe, out: Path | None = None, resume: Resume = False) -> TrainingRun:
    """The start of a run, after all refusals that need no data; nothing is written.

    Raises:
        InputError: the recipe cannot be trained here; there is no run to resume, it was made from another
            recipe, or its checkpoint cannot be used; `out` or `init_from` cannot be used.
    """
    folder, stored = existing_run(recipe, out, resume is True) if resume else (None, None)
    recipe = choose_auto(recipe, stored)
    _validate_recipe(recipe)
    run = TrainingRun(recipe, out, folder)
    if folder:
        run.checkpoint, run.content = _resume_point(folder, stored, recipe)
        run.saved_at = run.content["global_step"] if run.content else 0
    elif out and is_first_process():
        validate_free(out)
    if recipe.init_from and not run.checkpoint:
        run.origin = read_init_from(recipe)
    return run


def validate_plugins(recipe: Recipe) -> None:
    """Raises InputError if an encoding from a plugin breaks a law of the contract."""
    if not all(about.builtin for _, about in encodings_in(recipe.as_dict()["model"]["encoding"], ())):
        from zoo.contract.check import check_plugin  # other trainings do not need it

        check_plugin(recipe)


def _validate_recipe(recipe: Recipe) -> None:
    """Raises InputError with all problems of a recipe that cannot be trained here."""
    problems: list[Problem] = []
    for validate in (
        validate_trainable, validate_world_size, validate_precision, validate_installed, validate_plugins,
    ):  # fmt: skip
        with collect(problems):
            validate(recipe)
    if problems:
        raise InputError(problems)
    build_encoding(recipe)


def _resume_point(
    folder: Path, stored: dict[str, Any], recipe: Recipe
) -> tuple[Path | None, dict[str, Any] | None]:
    """The last checkpoint and its content; None for a run that stopped before its first one.

    Raises InputError for a checkpoint that is missing, cannot be read or does not allow this `max_steps`, and
    for a run of another recipe, `stored` in its folder or in its checkpoint.
    """
    checkpoint, content, recipes = folder / LAST, None, {folder / RECIPE: stored}
    if checkpoint.exists():
        content = read_checkpoint(checkpoint)
        recipes[checkpoint] = stored = content["hyper_parameters"]["recipe"]
    # A card of no steps is written before the first step. A new start would overwrite a run of more.
    elif steps_done(folder):
        raise InputError(f"{checkpoint}: missing. {alternatives(checkpoint)}")
    for where, one in recipes.items():
        validate_same_recipe(one, recipe, where)
    if content is None:
        return None, None
    if "zoo_card" not in content:
        text = "cannot be continued: it has no zoo_card, the record of its training"
        raise InputError(f"{checkpoint}: {text}. {alternatives(checkpoint)}")
    compare_code(content["zoo_card"], folder)
    problem = max_steps_problem(folder, stored, recipe, content["global_step"])
    if problem is not None:
        raise InputError(problem)
    return checkpoint, content
