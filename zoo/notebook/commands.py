"""The commands as functions. Wrong arguments raise InputError with the message of the command."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.comparison.frame import load
from zoo.errors import InputError, Problem
from zoo.notebook.comparison import Comparison
from zoo.notebook.run import Run
from zoo.recipe import Recipe, Tree, read_located, to_recipe
from zoo.reports import evaluate as evaluating
from zoo.reports import fit as training
from zoo.reports.report import build
from zoo.runs.folder import runs_among, validate_present

if TYPE_CHECKING:
    import pandas as pd

Runs = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""A run, its folder or its checkpoint, or several."""


def fit(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    sets: Sequence[str] | Mapping[str, Any] = (),
    out: str | Path | None = None,
    resume: bool | Literal["auto"] = False,
) -> Run:
    """Train, and evaluate at the recipe's lengths.

    Args:
        recipe: the path of a recipe file, a mapping, or a recipe, such as another run's.
        sets: changes to it: `{"seed": 1, "optimizer.lr": 1e-3}`, or `key=value` texts.
        out: the run folder; by default runs/NAME, or the next free number after it.
        resume: continue the run in `out`, or the newest of this name; "auto" starts one if there is none.

    Raises:
        InputError: the recipe or its data are wrong.
        RunError: training failed; the checkpoints stay in the run folder.
        KeyboardInterrupt: it was stopped; its text has the command that continues.
    """
    from_file = isinstance(recipe, str | Path)
    resolved, tree = read_located(recipe, sets) if from_file else (to_recipe(recipe, sets), Tree({}))
    try:
        return Run(training.fit(resolved, None if out is None else Path(out), resume))
    except InputError as error:
        raise tree.located(error) from error


def evaluate(
    runs: Runs,
    lengths: int | Sequence[int] | None = None,
    protocols: str | Sequence[str] | None = None,
    sets: Sequence[str] = (),
    data: str | Path | None = None,
    devices: int | None = None,
    checkpoints: Literal["last", "all"] = "last",
) -> pd.DataFrame:
    """Score trained models at several lengths, store the results in each run folder, and print them.

    Args:
        runs: a run, its folder or one of its checkpoints, or several.
        lengths: in tokens; by default those of each recipe.
        protocols: a name or several; by default those of each recipe.
        sets: `key=value` changes to the recipes, as `model.encoding=rerope`.
        data: another corpus to score: a text dataset, a file or folder of text, or a recipe (.yaml).
        devices: the processes that share it, started by torchrun or SLURM; by default all of them.
        checkpoints: "all": also the checkpoints of `checkpoint.keep_every_n_steps`.

    Returns: a row for each run, protocol and length, as in `lengths.json`.
    """
    import pandas as pd

    paths = _paths(runs)
    validate_present(paths)
    if checkpoints not in ("last", "all"):
        raise InputError(Problem(f"{checkpoints!r} is neither 'last' nor 'all'", key="checkpoints"))
    scored = evaluating.evaluate_steps if checkpoints == "all" else evaluating.evaluate
    corpus = None if data is None else str(data)
    return pd.DataFrame(scored(paths, _lengths(lengths), _names(protocols), sets, devices, corpus))


def results(
    runs: Runs, protocols: str | Sequence[str] | None = None, lengths: int | Sequence[int] | None = None
) -> pd.DataFrame:
    """The measurements of runs as one tidy table (`zoo.comparison.frame.Results`): a row for each run,
    protocol, length and measure, with its value and 95 % interval."""
    return load(_paths(runs), _names(protocols), _lengths(lengths)).rows


def compare(
    runs: Runs,
    protocols: str | Sequence[str] | None = None,
    lengths: int | Sequence[int] | None = None,
    force: bool = False,
    reference: str | None = None,
    models: bool = False,
    floor: float | None = None,
) -> Comparison:
    """Compare evaluated runs: a picture, tables and a verdict, which a notebook shows.

    Nothing is written: `.save(FOLDER)` writes the files of the command. Arguments as of
    `zoo.reports.report.build`.
    """
    chosen = _paths(runs), _names(protocols), _lengths(lengths)
    return Comparison(**vars(build(*chosen, force, reference=reference, models=models, floor=floor)))


def _paths(runs: Runs) -> list[Path]:
    paths = [Path(run) for run in ([runs] if isinstance(runs, str | os.PathLike) else runs)]
    if not paths:
        raise InputError("which runs? Give a run folder, or a list of them")
    return runs_among(paths)


def _names(names: str | Sequence[str] | None) -> list[str] | None:
    return [names] if isinstance(names, str) else list(names or ()) or None


def _lengths(lengths: int | Sequence[int] | None) -> list[int] | None:
    if lengths is None:
        return None
    given = [lengths] if isinstance(lengths, Integral) else list(lengths)
    if not given or not all(isinstance(one, Integral) and one > 0 for one in given):
        raise InputError(Problem(f"{given}: lengths are numbers of tokens, 1 or more", key="lengths"))
    return list(map(int, given))
