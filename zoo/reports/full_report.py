"""`zoo report`: all that is known of runs on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from zoo.console import waiting
from zoo.errors import InputError, RunError, printable
from zoo.files import atomic_write, full_disk_message, is_disk_full
from zoo.reports.caveats import caveats_of_runs
from zoo.reports.commands import command
from zoo.reports.compare import build
from zoo.reports.compared_run import Run, about, read_runs
from zoo.reports.details import Drawn, details_of
from zoo.reports.plot_page import GENERATOR, page
from zoo.reports.report import Caveat, Report

OUT = Path("report.html")
LONGEST = 256
"""Tokens at which encodings of models that were trained on more are drawn as trained."""
HEAD = 2000
"""Characters at the beginning of a page in which it says that it is ours."""


def report(
    paths: Sequence[Path],
    out: Path = OUT,
    force: bool = False,
    prompt: str = "The",
    sample_tokens: int = 200,
    attention: bool = False,
) -> Report:
    """Write one self-contained page on runs: results, trainings, encodings, samples, cards and recipes.

    Args:
        paths: run folders; those that were not evaluated yet are shown without results.
        out: the page; one that is there is replaced, if it is a page of this kind.
        force: report runs that are not comparable, and mark it.
        prompt, sample_tokens: of the samples; 0 tokens for none.
        attention: draw what goes on inside the models, which runs them.

    Raises:
        InputError: runs that cannot be read or are not comparable, with all that is wrong; or a file that
            is something else.
    """
    _validate_out(out)
    with waiting("reading the runs"):
        runs = read_runs(paths, evaluated=False)
        words = ["report", *map(str, paths), *(["--out", str(out)] if out != OUT else [])]
        made = replace(_results(runs, force), command=command(words + ["--force"] * force))
    details = details_of(runs, _encodings(runs), _inside(runs, attention), prompt, sample_tokens)
    try:
        atomic_write(out, page(made, details))
    except OSError as error:
        if is_disk_full(error):
            raise RunError(f"{full_disk_message(error)}; make room and try again") from error
        raise InputError(f"{out}: cannot be written: {error.strerror or error}") from error
    if made.verdict:
        print(printable(made.verdict))
    print(f"done: {out} has all of {len(runs)} run{'s' * (len(runs) > 1)}; open it in a browser", flush=True)
    return made


def _results(runs: Sequence[Run], force: bool) -> Report:
    """The comparison of those that were evaluated, and what is missing of the others."""
    evaluated = [run for run in runs if run.measurements]
    missing = tuple(
        Caveat(f"{run.path} was not evaluated", command(["evaluate", run.path]))
        for run in runs
        if run not in evaluated
    )
    if evaluated:
        made = build([Path(run.path) for run in evaluated], force=force)
        return replace(made, caveats=(*missing, *made.caveats))
    labels = ", ".join(dict.fromkeys(run.label for run in runs))
    caveats = (*missing, *caveats_of_runs(runs))
    return Report(f"{labels}: not evaluated yet", (), about=tuple(about(runs)), caveats=caveats)


def _encodings(runs: Sequence[Run]) -> Drawn:
    """Pictures of the encodings of runs, each once."""
    from zoo.figures.encoding import columns

    specs = {run.label: run.recipe["model"]["encoding"] for run in runs}
    trained = min(LONGEST, max(run.recipe["data"]["sequence_length"] for run in runs))
    try:
        return Drawn(columns((*specs.values(),), trained=trained, length=4 * trained))
    except InputError as error:
        return Drawn(why_not=(f"no pictures: {error}",))


def _inside(runs: Sequence[Run], asked: bool) -> Drawn:
    """Pictures of what goes on in the models."""
    if not asked:
        return Drawn(why_not=("not drawn: --attention does, by running the models on their validation data",))
    from zoo.figures.model import columns

    notes: list[str] = []
    try:
        return Drawn(columns(*(run.path for run in runs), log=notes.append), tuple(notes))
    except InputError as error:
        return Drawn(why_not=(f"no pictures: {error}",))


def _validate_out(out: Path) -> None:
    """Raises InputError where the page would replace what is none of ours."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {out}: the report is a page: its name ends in .html")
    if out.is_dir():
        raise InputError(f"--out {out}: a folder; name a file")
    if out.exists():
        with out.open(encoding="utf-8", errors="replace") as file:
            if GENERATOR not in file.read(HEAD):
                raise InputError(f"--out {out}: is there and no report of the zoo; choose another name")
