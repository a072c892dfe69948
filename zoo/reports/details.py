"""What a report says of each run beside its results: recipe, card, training, pictures, samples."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.console import progress_bar
from zoo.errors import InputError
from zoo.figures.grid import Columns, content, single
from zoo.figures.training import Logged, read_logged, training_panels
from zoo.files import read_text
from zoo.recipe.diff import ENCODING, flatten, is_among
from zoo.recipe.yaml_file import MAX_BYTES
from zoo.reports.comparable import differing, value_as_text
from zoo.reports.compared_run import Run
from zoo.runs.folder import METRICS, RECIPE, stored_recipe

CARD = {
    "encoding": "encoding", "task": "task", "data": "data", "train_length": "trained length (tokens)",
    "seed": "seed", "steps": "steps", "tokens_seen": "tokens seen", "finished": "finished",
    "parameters.total": "parameters", "parameters.positional": "parameters of the encoding",
    "precision": "precision", "compiled": "compiled", "device": "device", "init_from": "weights from",
    "imported": "imported from", "fingerprint.corpus": "fingerprint of the corpus",
    "fingerprint.tokenizer": "fingerprint of the tokenizer", "versions.torch": "torch",
    "versions.lightning": "lightning", "git_commit": "git commit",
}  # fmt: skip
"""What the table of cards has of a card, by dotted key, under which name; the whole card is in the run."""
UNKNOWN = "not known"


@dataclass(frozen=True)
class Picture:
    """A panel of a figure. `alternative` is for those who do not see it."""

    svg: bytes
    alternative: str
    caption: str

    @property
    def address(self) -> str:
        """As the source of an image: a page's own policy forbids styles in its text, and an SVG has them."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


@dataclass(frozen=True)
class Drawn:
    """A figure; or none, and why."""

    figure: Columns | None = None
    why_not: tuple[str, ...] = ()


Pictures = tuple[tuple[str, tuple[Picture, ...]], ...]
"""Names, each with the pictures that stand beside each other under it."""


@dataclass(frozen=True)
class Rows:
    """A table of texts; the first cell of a row is its name."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Sample:
    """What a run's model wrote after a prompt, and what of it lies beyond the trained length."""

    run: str
    label: str
    prompt: str
    within: str
    beyond: str
    ending: str


@dataclass(frozen=True)
class Details:
    """Of all runs of a report. `missing` says, by section, what is not there and why."""

    recipes: tuple[tuple[str, str], ...]
    """Names of the runs, and their resolved recipes as YAML."""
    differing: Rows
    cards: Rows
    training: Pictures
    last_logged: Rows
    encodings: Pictures
    inside: Pictures
    samples: tuple[Sample, ...]
    missing: dict[str, tuple[str, ...]]


def details_of(
    runs: Sequence[Run],
    encodings: Drawn,
    inside: Drawn,
    prompt: str,
    sample_tokens: int,
    seed: int = 0,
) -> Details:
    """Read them from the folders of runs, and let their models write.

    Args:
        encodings, inside: pictures of the runs' encodings, and of what goes on in their models.
        prompt: what each language model is to go on from.
        sample_tokens: how many tokens each is to write; 0 for none.

    Raises:
        InputError: a folder that cannot be read.
    """
    logged = {run.path: (run.label, read_logged(Path(run.path))) for run in runs}
    training = training_panels(logged)
    samples, why_no_samples = _samples(runs, prompt, sample_tokens, seed)
    silent = tuple(f"{path}: nothing was logged to {METRICS}" for path, (_, own) in logged.items() if not own)
    return Details(
        recipes=tuple((run.path, read_text(Path(run.path) / RECIPE, MAX_BYTES)) for run in runs),
        differing=_differing_keys(runs),
        cards=_cards(runs),
        training=_pictures({"": training}) if training else (),
        last_logged=_last_logged(logged),
        encodings=_pictures(encodings.figure) if encodings.figure else (),
        inside=_pictures(inside.figure) if inside.figure else (),
        samples=samples,
        missing={
            "training": silent,
            "encodings": encodings.why_not,
            "inside": inside.why_not,
            "samples": why_no_samples,
        },
    )


def _pictures(columns: Columns) -> Pictures:
    """The panels of each column beside each other, under its name where there are several."""
    return tuple(
        (
            label if len(columns) > 1 else "",
            tuple(Picture(content(single(one), ".svg"), one.title, one.caption) for one in panels),
        )
        for label, panels in columns.items()
    )


def _differing_keys(runs: Sequence[Run]) -> Rows:
    named = []
    several = len({run.label for run in runs}) > 1
    for run in runs:
        values = flatten(stored_recipe(Path(run.path)))
        if several:  # of two encodings the options are no differences: each has its own
            values = {key: value for key, value in values.items() if not is_among(key, (ENCODING,))}
            values[ENCODING] = run.label
        named.append((run.path, {("recipe", key): value for key, value in values.items()}))
    rows = []
    for one in differing(named):
        own = {path: value_as_text(value) for value, paths in one.values for path in paths}
        rows.append((one.key[1], *(own[run.path] for run in runs)))
    caption = "Keys of the recipes at which the runs differ"
    return Rows(caption, ("key", *(run.path for run in runs)), tuple(rows))


def _cards(runs: Sequence[Run]) -> Rows:
    cards = [flatten(run.card) for run in runs]
    rows = []
    for key, name in CARD.items():
        below = f"{key}."
        cells = []
        for card in cards:
            parts = {k.removeprefix(below): v for k, v in card.items() if k.startswith(below)}
            value = "; ".join(f"{k} {v}" for k, v in parts.items()) if parts else card.get(key)
            cells.append(UNKNOWN if value is None else _shown(value))
        if any(cell != UNKNOWN for cell in cells) or key == "tokens_seen":
            rows.append((name, *cells))
    return Rows("Cards: what makes checkpoints comparable", ("", *(run.path for run in runs)), tuple(rows))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return value_as_text(value)


def _last_logged(logged: dict[str, tuple[str, Logged]]) -> Rows:
    rows = []
    for path, (label, own) in logged.items():
        steps, losses = own.get("train/loss", ((), ()))
        valid_steps, valid = own.get("val/loss", ((), ()))
        best = int(np.argmin(valid)) if len(valid) else None
        rows.append(
            (
                path,
                label,
                f"{steps[-1]:,}" if len(steps) else UNKNOWN,
                f"{losses[-1]:.3f}" if len(losses) else UNKNOWN,
                f"{valid[-1]:.3f}" if len(valid) else UNKNOWN,
                UNKNOWN if best is None else f"{valid[best]:.3f} at step {valid_steps[best]:,}",
            )
        )
    header = ("run", "encoding", "last step", "training loss", "validation loss", "lowest validation loss")
    return Rows("Training, by what was logged last; losses in nats", header, tuple(rows))


def _samples(
    runs: Sequence[Run], prompt: str, tokens: int, seed: int
) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """What the models write, and why some do not."""
    if not tokens:
        return (), ("none was asked for (--sample-tokens 0)",)
    from zoo.generation.text import open_generator
    from zoo.models.decoding import Sampling

    samples, missing = [], []
    with progress_bar(len(runs), "samples", "run") as bar:
        for run in runs:
            try:
                generator = open_generator(run.path)
                parts, ended, count = ["", ""], False, 0
                for piece in generator.stream(prompt, tokens, Sampling(0.8, top_p=0.95), seed):
                    parts[piece.position >= generator.trained_length] += piece.text
                    ended, count = piece.ended, count + 1
                ending = "the model closed the document" if ended else f"{count:,} tokens"
                samples.append(Sample(run.path, run.label, prompt, *parts, ending))
            except InputError as error:
                missing.append(f"{run.path}: {str(error).removeprefix(f'{run.path}: ')}")
            bar.update()
    return tuple(samples), tuple(missing)
