"""A short check of a plugin before training: some of the laws, on a small model like the recipe's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo import registry
from zoo.contract import LAWS
from zoo.contract.hooks import SPELLED
from zoo.contract.law import CAUSAL, CHANGES, SHAPES
from zoo.contract.numerics import PRECISION
from zoo.contract.small_model import Subject, names_in
from zoo.contract.suite import Verdict, examine
from zoo.contract.training import GRADIENTS
from zoo.errors import InputError, Problem
from zoo.recipe import Recipe

NARROW, SHORT, FEW = 512, 16, 2
"""Width, trained length and layers of a cheap model."""
MOST = 25_000_000
"""Width squared times layers of the largest model that is tried."""


def check_plugin(recipe: Recipe) -> None:
    """Try some laws on a recipe's encoding, on the CPU, in about a second.

    A law that a small model breaks counts only if a model of the recipe's size breaks it too.

    Raises:
        InputError: a hook is misspelled or returns what the model cannot use, a decoder's output depends on a
            later token, a parameter has no gradient, or nothing changes. Each names hook, file and line.
    """
    spec = recipe.as_dict()["model"]["encoding"]
    names = [SPELLED, SHAPES, CHANGES, CAUSAL, GRADIENTS]
    # In full precision a plugin need not handle bf16.
    names += [PRECISION] if "16" in str(recipe.trainer.precision) else []
    laws = [law for law in LAWS if law.name in names]
    broken: list[Verdict] = []
    for config, length in _sizes(recipe):
        subject = Subject(spec, recipe.model.kind, config=config, length=length)
        try:
            _ = subject.stack
        except (Exception, SystemExit):
            continue  # options that fit the recipe's sizes and not these
        broken = [verdict for verdict in examine([subject], laws) if verdict.broken]
        if not broken:
            return
    if broken:
        raise InputError([_problem(verdict, spec) for verdict in broken])


def _sizes(recipe: Recipe) -> Iterator[tuple[dict[str, Any], int]]:
    """Model sizes to try: a small one first, then closer to the recipe's."""
    model, length = recipe.model, recipe.data.sequence_length
    heads, few = model.num_heads, min(FEW, model.num_layers)
    narrow = model.d_model if model.d_model <= NARROW else 8 * heads
    sizes = [(narrow, few, SHORT), (model.d_model, few, length), (model.d_model, model.num_layers, length)]
    for width, layers, trained in dict.fromkeys(sizes):
        if width**2 * layers <= MOST:
            yield {"d_model": width, "num_heads": heads, "num_layers": layers, "d_ff": 64}, trained


def _problem(verdict: Verdict, spec: Any) -> Problem:
    plugins = [about for about in map(registry.encodings.describe, names_in(spec)) if not about.builtin]
    (finding,) = (finding for _, finding in verdict.broken)
    where = finding.where or plugins[0].where
    about = next((one for one in plugins if where.startswith(f"{one.file}:")), plugins[0])
    what = about.name if about.package else str(about.file)
    return Problem(
        f"encoding {about.name!r} was tried before training: {verdict.law.name}: {finding.numbers} "
        f"(zoo check {what})",
        key="model.encoding",
        where=where,
    )
