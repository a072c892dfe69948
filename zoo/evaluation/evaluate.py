"""Evaluation of trained models: each is measured, and its measurements are stored in its run folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from zoo.data.source import DataSource
from zoo.evaluation.load import load_runs
from zoo.evaluation.measure import measure
from zoo.evaluation.measurement import Measurement
from zoo.evaluation.protocols.protocol import build_protocol
from zoo.evaluation.store import store, store_lines
from zoo.launch.team import Team, join
from zoo.runs.load import LoadedRun


def evaluate_runs(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    devices: int | None = None,
    data: str | None = None,
) -> Iterator[tuple[LoadedRun, Iterator[Measurement]]]:
    """Each run with its measurements, which are made and stored while they are iterated.

    Args:
        paths: run folders or checkpoint files.
        lengths: in tokens; by default those of each recipe.
        protocols: names; by default those of each recipe.
        sets: `key=value` changes to the recipes, for example where the data lies, or of an encoding what may
            change after training; such measurements are kept as well as those of the encoding as trained.
        devices: the processes on this machine that share the work, started by torchrun or SLURM; by default
            all of them.
        data: another corpus to score, in the tokens of each run: the name of a text dataset, a file or folder
            of text, or a recipe with a section `data`; for generated data the run's own dataset, with other
            options in `sets`. Its measurements have the parameter `data`.

    Raises:
        InputError: a path, a protocol or a change that cannot be used, data of another tokenizer, or a folder
            that takes no results: before anything is measured.
        RunError: a process that shared the work has ended.
    """
    loaded = load_runs(paths, lengths, protocols, sets, data)
    accelerators = [run.task.recipe.trainer.accelerator for run, _ in loaded]
    with join(devices, accelerators[0]) as team:
        if team.rank == 0:
            for line in dict.fromkeys(source.about for _, source in loaded if source.about):
                print(line, file=sys.stderr)
        for (run, source), accelerator in zip(loaded, accelerators, strict=True):
            team.use(accelerator)
            yield run, evaluate_run(run, source, lengths, protocols, team)
            run.task.model.cpu()  # the memory of the next one is measured without this one


def evaluate_run(
    run: LoadedRun,
    source: DataSource,
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    team: Team | None = None,
) -> Iterator[Measurement]:
    """The measurements of one run, length by length, each stored as soon as it is made."""
    for one in measure(run, source, lengths, protocols, team):
        try:
            if team is None or team.rank == 0:
                store(run.folder, [one])
                protocol = build_protocol(one.protocol, run.task.recipe.evaluate)
                store_lines(run.folder, one, protocol.lines(run.task, source, one))
        finally:
            yield one  # also where the disk is full
