"""A run folder as an object: recipe, card, training curves, results and model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import InputError, Problem
from zoo.evaluation.measurement import flat_rows
from zoo.evaluation.store import read_measurements
from zoo.recipe import Recipe, recipe_of_run
from zoo.runs.card import read_card
from zoo.runs.folder import BEST, LAST, RECIPE, nearest_run_hint, stored_recipe
from zoo.runs.load import load, run_folder_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from zoo.models.transformer import Transformer


class Run:
    """The run in the folder `path`, or of the checkpoint `path`; InputError where there is none.

    Each part is read when it is used, so that later results are included. Parts that cannot be read raise
    InputError.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not (self.path / RECIPE).is_file():
            folder = run_folder_of(self.path) if self.path.is_file() else None
            if folder is None:
                why = f"no run folder: there is no {RECIPE} in it" if self.path.exists() else "no such run"
                raise InputError(Problem(f"{why}{nearest_run_hint(self.path)}", where=str(path)))
            self.path = folder

    @cached_property
    def recipe(self) -> Recipe:
        """The resolved recipe; its plugins are not imported."""
        return recipe_of_run(stored_recipe(self.path))

    @property
    def card(self) -> dict[str, Any]:
        return read_card(self.path)

    @property
    def curves(self) -> pd.DataFrame:
        """The log of the training, by step, NaN where a column was not logged:
        `run.curves["train/loss"].plot()`."""
        from zoo.figures.training import read_logged

        return read_logged(self.path)

    @property
    def results(self) -> pd.DataFrame:
        """The rows of `evaluation/lengths.json`; empty before the first evaluation."""
        import pandas as pd

        return pd.DataFrame(flat_rows(read_measurements(self.path)))

    def model(self, best: bool = False, **options: Any) -> Transformer:
        """The trained model in evaluation mode: of the last checkpoint, or of the one with the lowest
        validation loss. `options` are those of `zoo.load`: `device`, `plugins`, `sets`."""
        return load(self.path / (BEST if best else LAST), **options)

    def generate(self, prompt: str, max_new_tokens: int = 200, seed: int = 0, **options: Any) -> str:
        """A continuation of a prompt: `run.generate("The river", temperature=0.8, top_p=0.95)`.

        Args:
            options: `temperature`, `top_k` and `top_p`, as of `zoo generate`.
        """
        from zoo.generation.text import open_generator
        from zoo.models.decoding import Sampling

        (one,) = open_generator(self.path).generate([prompt], max_new_tokens, Sampling(**options), seed)
        return one.text

    def draw(self, lengths: Sequence[int] | None = None) -> Figure:
        """The figure of `zoo draw`, which a notebook shows; arguments as of `zoo.figures.model.columns`."""
        from zoo.figures import model
        from zoo.figures.grid import grid

        return grid(model.columns(self.path, lengths=lengths), model.TITLE)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __repr__(self) -> str:
        return f"zoo.open({str(self.path)!r})"
