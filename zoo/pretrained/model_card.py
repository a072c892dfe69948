"""README.md of an exported model: facts, training data, results by length, loading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader

from zoo.comparison.formatting import display_name
from zoo.comparison.statistics import MAIN
from zoo.evaluation.measurement import Measurement
from zoo.pretrained.options import called
from zoo.recipe.encoding import encoding_label
from zoo.runs.code_source import code_sources, packages
from zoo.training.plan import short

PACKAGE = "positional-encoding-zoo"
# The names of datasets on the hub.
HUB_DATASETS = {"wikitext-2": "Salesforce/wikitext", "wikitext-103": "Salesforce/wikitext"}


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        loaded_by: the Python expression that loads it.
        architecture: of `transformers`, as which it was written; None for the zoo's own.
        reason: why it is the zoo's own.
        difference: the largest of its logits to those of the run, where it was read back.
        read_by: the versions of `transformers` that read it.
        tokens: how many other tools read at a time, by its configuration.
        harness: the command that measures it beyond the trained length with lm-evaluation-harness, if any.
    """

    loaded_by: str
    architecture: str | None = None
    reason: str = ""
    difference: float | None = None
    read_by: str = ""
    tokens: int = 0
    harness: str = ""


def model_card(
    recipe: dict[str, Any],
    card: dict[str, Any],
    curves: str | None,
    exported: Exported,
    measured: Sequence[Measurement] = (),
) -> str:
    """The model card, Markdown under the hub's metadata. No licence is given: the run does not know it.

    Args:
        recipe: resolved.
        card: the run's; empty for a checkpoint that has none.
        curves: the tables of its evaluation, Markdown; None where it was not evaluated.
        exported: the result of its export.
        measured: the measurements of the exported model, for the hub's index of results.
    """
    loaded_by, model, encoding = exported.loaded_by, recipe["model"], called(recipe["model"]["encoding"])
    library = "zoo" if loaded_by.startswith("zoo.") else "transformers"
    causal = model["kind"] == "decoder"
    metadata: dict[str, Any] = {
        "library_name": PACKAGE if library == "zoo" else library,
        "tags": [PACKAGE, "positional-encoding", encoding],
    }
    if causal or "MaskedLM" in loaded_by:
        metadata["pipeline_tag"] = "text-generation" if causal else "fill-mask"
    # The data in the recipe of an imported model are its evaluation data.
    imported = card.get("imported") or {}
    if (data := HUB_DATASETS.get(recipe["data"]["name"])) and not imported:
        metadata["datasets"] = [data]
    if results := [one for measurement in measured for one in _results(measurement, recipe, metadata)]:
        metadata["model-index"] = [{"name": model_name(recipe, card), "results": results}]
    needs_zoo = library == "zoo" or "trust_remote_code" in loaded_by
    # One level deeper than in the run's own report, whose title says nothing new here.
    body = re.sub("^##", "###", re.sub("^# .*\n", "", curves or "", flags=re.M).strip(), flags=re.M)
    environment = Environment(loader=PackageLoader("zoo.pretrained", "."), keep_trailing_newline=True)
    environment.filters |= {
        "code": "`{}`".format,
        "in_one_line": lambda value: yaml.safe_dump(value, default_flow_style=True, width=10**6).strip(),
        "number": lambda value: "unknown" if value is None else f"{value:,}",
    }
    return environment.get_template("model_card.md.j2").render(
        recipe=recipe, model=model, encoding=encoding, imported=imported, exported=exported, library=library,
        card={"tokens_seen": None, "steps": None, **card}, curves=body,
        metadata=yaml.safe_dump(metadata, sort_keys=False),
        packages=" ".join([PACKAGE, *packages(code_sources(recipe))]) if needs_zoo else "",
    )  # fmt: skip


def model_name(recipe: dict[str, Any], card: dict[str, Any]) -> str:
    """`zoo-rope-1.31M-wikitext-2-5.73M-L256-seed0`: encoding, parameters, corpus, tokens seen, trained length
    and seed. Of an imported model the first two and the last part of what it was imported from."""
    data, counts, imported = recipe["data"], card.get("parameters") or {}, card.get("imported")
    words = [encoding_label(recipe["model"]["encoding"]), short(counts.get("total") or 0)]
    if imported:
        words.append(Path(imported["from"]).name)
    else:
        words += [corpus_name(data), short(card.get("tokens_seen") or 0), f"L{data['sequence_length']}"]
        words.append(f"seed{recipe['seed']}")
    return "-".join(
        ["zoo", *(re.sub(r"[^A-Za-z0-9.]+", "-", word.replace(" ", "")).strip("-") for word in words)]
    )


def corpus_name(data: dict[str, Any]) -> str:
    """The name of a dataset, or the last part of the folder or of the hub's id that holds it."""
    return Path(data.get("id") or data.get("root") or data["name"]).name


def _results(one: Measurement, recipe: dict[str, Any], metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """A measurement in the hub's form: a result for each length."""
    corpus = one.parameters.get("data") or corpus_name(recipe["data"])
    found = []
    for row in one.rows:
        measure = next((name for name in MAIN if getattr(row, name, None) is not None), None)
        if measure:
            name = f"{display_name(measure)} at {row.length} tokens, {one.protocol}"
            found.append(
                {
                    "task": {"type": metadata.get("pipeline_tag", "other")},
                    "dataset": {"name": corpus, "type": HUB_DATASETS.get(corpus, corpus)},
                    "metrics": [{"name": name, "type": measure, "value": getattr(row, measure)}],
                }
            )
    return found
