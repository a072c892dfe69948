"""`zoo report`: results, training, encodings, samples, cards and recipes of runs on one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from zoo.comparison.caveats import of_runs
from zoo.comparison.frame import Results
from zoo.comparison.run_info import RunInfo
from zoo.comparison.runs import evaluate_command, read_runs
from zoo.comparison.statistics import costs, summary
from zoo.console import command, waiting
from zoo.errors import InputError
from zoo.files import atomic_write, read_text
from zoo.reports.compare import all_differences, differences_table
from zoo.reports.page import GENERATOR, Code, Folded, PageSection, Part, Picture, Table
from zoo.reports.report import Report, about_runs, build
from zoo.reports.tables import report_page
from zoo.runs.folder import CARD, METRICS, RECIPE

OUT = Path("report.html")
LONGEST = 256
"""Tokens at which encodings of models that were trained on more are drawn as trained."""
HEAD = 2000
"""Characters in which a page of the zoo names its generator."""


def report(
    paths: Sequence[Path],
    out: Path = OUT,
    force: bool = False,
    prompt: str = "The",
    sample_tokens: int = 200,
) -> Report:
    """Write one page on runs.

    Args:
        paths: run folders; runs without an evaluation are shown without results.
        out: the page; one that is there is replaced, if it is a page of this kind.
        force: report runs that are not comparable, and mark it.
        prompt, sample_tokens: of the samples; 0 tokens for none.

    Raises:
        InputError: runs that cannot be read or are not comparable; or a file that is something else.
    """
    _validate_out(out)
    with waiting("reading the runs"):
        runs = read_runs(paths, evaluated=False)
        words = ["report", *paths, *(["--out", out] if out != OUT else []), *["--force"] * force]
        made = replace(_results(runs, force), command=command(*words))
    with waiting("writing samples"):
        samples = [*_samples(runs, prompt, sample_tokens)]
    sections = [
        _training(runs),
        PageSection("The encodings", _encodings(runs)),
        PageSection("Samples", samples),
        PageSection("The runs", [*_runs(runs)]),
    ]
    atomic_write(out, report_page(made, sections))
    for one in made.verdict:
        print(one)
    print(f"done: {out} has all of {len(runs)} run{'s' * (len(runs) > 1)}; open it in a browser", flush=True)
    return made


def _results(runs: Sequence[RunInfo], force: bool) -> Report:
    """The comparison of the evaluated runs; the others are caveats."""
    evaluated = [run for run in runs if run.measurements]
    missing = tuple(
        f"{run.path}: not evaluated; do it with: {evaluate_command([run.path])}"
        for run in runs
        if not run.measurements
    )
    if evaluated:
        made = build([Path(run.path) for run in evaluated], force=force)
        return replace(made, caveats=(*missing, *made.caveats))
    labels = ", ".join(dict.fromkeys(run.label for run in runs))
    empty = Results.of([])
    table = summary(empty)
    notes = (*missing, *of_runs(runs))
    return Report(f"{labels}: not evaluated yet", empty, table, costs(empty, table), about_runs(runs), notes)


def _training(runs: Sequence[RunInfo]) -> PageSection:
    from zoo.figures.training import read_logged, training_curves

    logged = {run.path: (run.label, read_logged(Path(run.path))) for run in runs}
    figure = training_curves(logged)
    empty = [f"{path}: nothing was logged to {METRICS}" for path, (_, own) in logged.items() if own.empty]
    return PageSection("Training", [figure, *empty] if figure else empty)


def _encodings(runs: Sequence[RunInfo]) -> list[Part]:
    from zoo.figures import encoding
    from zoo.figures.style import content

    specs = {run.label: run.recipe["model"]["encoding"] for run in runs}
    trained = min(LONGEST, max(run.recipe["data"]["sequence_length"] for run in runs))
    about = "Vectors, queries, keys and scores before training, inside and beyond the trained length"
    try:
        figure = encoding.figure((*specs.values(),), trained=trained, length=4 * trained)
    except InputError as error:
        return [f"no pictures: {error}"]
    return [Picture(content(figure, ".svg"), about)]


def _samples(runs: Sequence[RunInfo], prompt: str, tokens: int) -> Iterator[Part]:
    if not tokens:
        yield "none was asked for (--sample-tokens 0)"
        return
    from zoo.generation.text import open_generator
    from zoo.models.decoding import Sampling

    yield "Temperature 0.8, nucleus 0.95, one prompt and seed; a bar marks the end of the trained length."
    for run in runs:
        try:
            generator = open_generator(run.path)
            pieces = [*generator.stream(prompt, tokens, Sampling(0.8, top_p=0.95), 0)]
            within = [piece.text for piece in pieces if piece.position < generator.trained_length]
            beyond = [piece.text for piece in pieces[len(within) :]]
            ended = pieces and pieces[-1].ended
            ending = "the model closed the document" if ended else f"{len(pieces):,} tokens"
            yield f"{run.label} ({run.path}), {ending}:"
            yield Code(prompt + " ┃ ".join(filter(None, map("".join, (within, beyond)))))
        except InputError as error:
            yield f"{run.path}: {str(error).removeprefix(f'{run.path}: ')}"


def _runs(runs: Sequence[RunInfo]) -> Iterator[Part]:
    """A table of the differing keys, the recipes and the cards."""
    if found := all_differences(runs):
        yield Table(*differences_table(runs, found), "Keys at which the runs differ")
    for run in runs:
        for name, file in (("Recipe", RECIPE), ("Card", CARD)):
            yield Folded(f"{name} of {run.path}", [Code(read_text(Path(run.path) / file))])


def _validate_out(out: Path) -> None:
    """Raises InputError where the page would replace a file of another kind."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {out}: the report is a page: its name ends in .html")
    if out.is_dir():
        raise InputError(f"--out {out}: a folder; name a file")
    if out.exists():
        with out.open(encoding="utf-8", errors="replace") as file:
            if GENERATOR not in file.read(HEAD):
                raise InputError(f"--out {out}: is there and not a report of the zoo; choose another name")
