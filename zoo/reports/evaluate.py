"""`zoo evaluate`: scores of trained models at several lengths, with tables, plots and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.comparison.commands import command, options
from zoo.comparison.frame import MEASURES
from zoo.console import table
from zoo.errors import InputError, Problem, RunError, printable
from zoo.evaluation.load import load_runs
from zoo.evaluation.measure import measure
from zoo.evaluation.measurement import Measurement, flat_rows
from zoo.evaluation.store import EVALUATION
from zoo.files import shortest
from zoo.launch.ranks import is_first_process
from zoo.launch.team import join
from zoo.reports.report import run_report
from zoo.reports.run_folder import store_results
from zoo.reports.text import console, terminal
from zoo.runs.card import read_card
from zoo.runs.folder import kept_checkpoints
from zoo.runs.load import find_checkpoint


def evaluate(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    devices: int = 1,
    data: str | None = None,
) -> list[dict[str, Any]]:
    """Evaluate runs or checkpoints, store the results in each run folder, and print the report of each.

    Args:
        paths: run folders or checkpoint files.
        lengths: in tokens; by default those of each recipe.
        protocols: names; by default those of each recipe.
        sets: `key=value` changes to the recipes, for example where the data lies, or of an encoding what may
            change after training; such measurements are kept as well as those of the encoding as trained.
        devices: the processes on this machine that share the work, started by torchrun or SLURM.
        data: another corpus to score, in the tokens of each run: the name of a text dataset, a file or folder
            of text, or a recipe with a section `data`. Its measurements have the parameter `data`.

    Returns: the rows, as in `lengths.json`.

    Raises:
        InputError: a path, a protocol or a change that cannot be used, data of another tokenizer, or a folder
            that takes no results.
        RunError: a process that shared the work has ended, or nothing at all could be measured.
        KeyboardInterrupt: stopped on demand; its text has the command for the rest.
    """
    given = paths, lengths, protocols, sets, data
    measured: list[Measurement] = []
    done: list[Path] = []
    folders: dict[str, None] = {}
    try:
        runs = load_runs(*given)
        with join(devices, runs[0].task.recipe.trainer.accelerator) as team:
            for run in runs:
                of_run: list[Measurement] = []

                def save(so_far: list[Measurement], run=run, of_run=of_run) -> None:
                    of_run[:] = so_far
                    if team.rank == 0:
                        store_results(run.folder, so_far)
                        folders[printable(shortest(run.folder / EVALUATION))] = None

                team.use(run.task.recipe.trainer.accelerator)
                try:
                    measure(run.task, run.source, run.folder, run.checkpoint, lengths, protocols, team, save)
                finally:
                    # Measurements are shown, even if it cannot be stored or a later run fails.
                    if team.rank == 0 and of_run:
                        # Only their paths tell runs of one recipe apart.
                        name = shortest(run.path) if len(paths) > 1 else None
                        print(console(run_report(run.folder, of_run, name), *terminal()) + "\n", flush=True)
                # The memory of the next one is measured without this one.
                run.task.cpu()
                done.append(run.path)
                measured += of_run
            if team.rank == 0:
                print(f"results, tables, plots and a page (index.html): {', '.join(folders)}", flush=True)
    except KeyboardInterrupt:
        rest = map(str, [path for path in paths if path not in done] or paths)
        words = [
            "evaluate",
            *rest,
            *options(protocols, lengths),
            *(word for one in sets for word in ("--set", one)),
            *(["--data", data] if data else []),
        ]
        again = command([*words, *["--devices", str(devices)] * (devices > 1)])
        kept = f"what was measured is kept in {', '.join(folders)}" if folders else "nothing was written"
        raise KeyboardInterrupt(f"interrupted; {kept}; measure the rest: {again}") from None
    rows = flat_rows(measured)
    if team.rank == 0 and all("note" in row for row in rows):
        raise RunError(f"nothing could be measured: {'; '.join(dict.fromkeys(row['note'] for row in rows))}")
    return rows


def evaluate_steps(paths: Sequence[Path], *how: Any) -> list[dict[str, Any]]:
    """Evaluate the kept checkpoints of each run and its last one, and print the scores by step.

    Errors, result and the other arguments are those of `evaluate`; the paths are run folders.
    """
    import pandas as pd

    measured: list[dict[str, Any]] = []
    for path in paths:
        kept, last = kept_checkpoints(path), find_checkpoint(path)
        if not kept:
            advice = "only a run with checkpoint.keep_every_n_steps keeps checkpoints"
            raise InputError(Problem(f"no checkpoints/step-N.ckpt in it: {advice}", where=str(path)))
        files = [file for step, file in kept.items() if step != read_card(path)["steps"]]
        measured += (own_rows := evaluate([*files, last], *how))
        rows = pd.DataFrame(own_rows)
        for protocol, own in rows.groupby("protocol", sort=False) if is_first_process() else ():
            measure = next(one for one in MEASURES if one in own and own[one].notna().any())
            print(f"\n{printable(str(path))}: {measure} by step and length ({protocol})")
            scores = own.pivot_table(measure, "step", "length", aggfunc="first")
            header = ["step", *map(str, scores.columns)]
            lines = [[str(step), *(f"{one:.4g}" for one in row)] for step, *row in scores.itertuples()]
            print(table(header, lines), flush=True)
    return measured
